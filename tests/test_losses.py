"""seed/losses.py against values worked out by hand and against exact enumeration over a four-token vocabulary."""
import math

import pytest
import torch

from seed.grpo import token_mean
from seed.losses import opd_loss, opsd_loss, rlsd_advantages, skill_sd_loss

P = torch.tensor([0.5, 0.2, 0.25, 0.05], dtype=torch.double)
Q = torch.tensor([0.1, 0.6, 0.1, 0.2], dtype=torch.double)
LOSSES = (opd_loss, opsd_loss, skill_sd_loss)
every_loss = pytest.mark.parametrize("loss_of", LOSSES)


def test_opd_by_hand():
    # Delta = ln 2: gate = sigmoid(5 ln 2) = 32/33, loss = 32/33 ln 2; Delta = -ln 2: gate = 1/33, loss = -1/33 ln 2
    student = torch.tensor([[math.log(0.25), math.log(0.5)]], requires_grad=True)
    teacher = torch.tensor([[math.log(0.5), math.log(0.25)]])
    loss, seen = opd_loss(student, teacher, torch.ones(1, 2, dtype=torch.bool), beta=5.0)
    assert loss[0].tolist() == pytest.approx([32 / 33 * math.log(2), -math.log(2) / 33], abs=1e-5)
    assert seen["gate"].tolist() == pytest.approx([32 / 33, 1 / 33], abs=1e-5)
    assert seen["delta"].tolist() == pytest.approx([math.log(2), -math.log(2)], abs=1e-5)
    loss.sum().backward()
    assert student.grad[0].tolist() == pytest.approx([-32 / 33, -1 / 33], abs=1e-5)   # - g, nothing through the gate


def test_opd_gradient_by_enumeration():
    # E_pi[grad L_opd] = - sum pi g grad log pi, with g = sigmoid(beta (log q - log pi))
    logits = P.log().clone().requires_grad_()
    loss, _ = opd_loss(logits.log_softmax(0)[:, None], Q.log()[:, None], torch.ones(4, 1, dtype=torch.bool), beta=2.0)
    (P * loss[:, 0]).sum().backward()
    weight = P * torch.sigmoid(2.0 * (Q / P).log())
    assert torch.allclose(logits.grad, -(weight - P * weight.sum()), atol=1e-12) and logits.grad.abs().max() > 0.1


def test_reverse_kl_by_enumeration():
    """The expected gradient of OPSD's and of Skill-SD's loss is that of KL(pi || q), and Skill-SD's expected value is the KL."""
    exact = P.log().clone().requires_grad_()
    kl = (exact.softmax(0) * (exact.log_softmax(0) - Q.log())).sum()
    kl.backward()
    for loss_of in (opsd_loss, skill_sd_loss):
        logits = P.log().clone().requires_grad_()
        loss, _ = loss_of(logits.log_softmax(0)[:, None], Q.log()[:, None], torch.ones(4, 1, dtype=torch.bool))
        (P * loss[:, 0]).sum().backward()
        assert torch.allclose(logits.grad, exact.grad, atol=1e-12) and exact.grad.abs().max() > 0.2
    assert (P * loss[:, 0].detach()).sum().item() == pytest.approx(kl.item(), abs=1e-12) and kl.item() > 0.5


def test_skill_sd_corrects_for_an_older_policy_by_enumeration():
    """Tokens drawn from pi_old, rho in front: value and gradient are those of KL(pi || q) all the same."""
    old = torch.tensor([0.3, 0.3, 0.2, 0.2], dtype=torch.double)
    exact, logits = P.log().clone().requires_grad_(), P.log().clone().requires_grad_()
    kl = (exact.softmax(0) * (exact.log_softmax(0) - Q.log())).sum()
    kl.backward()
    loss, _ = skill_sd_loss(logits.log_softmax(0)[:, None], Q.log()[:, None], torch.ones(4, 1, dtype=torch.bool), old_BL=old.log()[:, None])
    estimate = (old * loss[:, 0]).sum()
    estimate.backward()
    assert estimate.item() == pytest.approx(kl.item(), abs=1e-12) and torch.allclose(logits.grad, exact.grad, atol=1e-12)


def test_siblings_by_hand():
    # Delta = ln 2 and -ln 2. OPSD: - Delta ell. Skill-SD: 2 - 1 - ln 2 and 1/2 - 1 + ln 2; with rho = 1 the gradient is k3 + 1 - exp(D).
    student = torch.tensor([[math.log(0.25), math.log(0.5)]], requires_grad=True)
    teacher, mask, ln2 = torch.tensor([[math.log(0.5), math.log(0.25)]]), torch.ones(1, 2, dtype=torch.bool), math.log(2)
    loss, seen = opsd_loss(student, teacher, mask)
    assert loss[0].tolist() == pytest.approx([2 * ln2 ** 2, -ln2 ** 2], abs=1e-6) and seen["delta"].tolist() == pytest.approx([ln2, -ln2])
    assert torch.autograd.grad(loss.sum(), student)[0][0].tolist() == pytest.approx([-ln2, ln2], abs=1e-6)
    loss, _ = skill_sd_loss(student, teacher, mask)
    assert loss[0].tolist() == pytest.approx([1 - ln2, ln2 - 0.5], abs=1e-6)
    assert torch.autograd.grad(loss.sum(), student)[0][0].tolist() == pytest.approx([1 - ln2 - 1, ln2 - 0.5 + 0.5], abs=1e-6)
    # ell_old = ell - ln 3: rho = 3
    loss, _ = skill_sd_loss(student, teacher, mask, old_BL=student.detach() - math.log(3))
    assert loss[0].tolist() == pytest.approx([3 * (1 - ln2), 3 * (ln2 - 0.5)], abs=1e-6)


def test_rlsd_by_hand():
    # w = clip(exp(sign(A) Delta), 0.8, 1.2), A_l = A (0.5 + 0.5 w); the last token has no teacher.
    student, teacher = torch.zeros(2, 4), torch.tensor([[0.1, 1.0, -1.0, 5.0]] * 2)
    mask = torch.tensor([[True, True, True, False]] * 2)
    credit, seen = rlsd_advantages(torch.tensor([2.0, -1.0]), student, teacher, mask)
    e = math.exp(0.1)
    assert credit[0].tolist() == pytest.approx([1 + e, 2.2, 1.8, 2.0], abs=1e-6)        # a success: more where the skill endorses
    assert credit[1].tolist() == pytest.approx([-0.5 - 0.5 / e, -0.9, -1.1, -1.0], abs=1e-6)   # a failure: less there
    assert seen["delta"].shape == (6,)


@pytest.mark.parametrize("poison", [1e30, float("nan"), float("inf")])
def test_rlsd_never_reads_padding_and_has_no_gradient(poison):
    mask = torch.tensor([[True, False]])
    student = torch.tensor([[-0.7, poison]], requires_grad=True)
    credit, _ = rlsd_advantages(torch.tensor([1.5]), student, torch.tensor([[-0.6, poison]]), mask)
    assert not credit.requires_grad and credit[0, 1] == 1.5 and 1.5 < credit[0, 0] < 1.65
    credit, seen = rlsd_advantages(torch.tensor([1.5, 0.0]), torch.zeros(2, 2), torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    assert credit.tolist() == [[1.5, 1.5], [0.0, 0.0]] and seen["delta"].numel() == 0     # all masked: A as it was


def test_rlsd_with_equal_teacher_and_student_is_grpo():
    logp = torch.tensor([[-1.0, -2.0]])
    credit, _ = rlsd_advantages(torch.tensor([-2.0]), logp, logp, torch.ones(1, 2, dtype=torch.bool))
    assert credit.tolist() == [[-2.0, -2.0]]


@every_loss
def test_raises_what_the_skill_endorses_relative_to_the_rest(loss_of):
    logits = torch.zeros(3, requires_grad=True)
    teacher = torch.tensor([0.8, 0.1, 0.1]).log()
    loss, _ = loss_of(logits.log_softmax(0)[:, None], teacher[:, None], torch.ones(3, 1, dtype=torch.bool))
    (logits.detach().softmax(0) * loss[:, 0]).sum().backward()
    after = (logits - logits.grad).softmax(0)
    assert logits.grad.abs().max() > 0.1 and after[0] > 1 / 3 > after[1]


def test_equal_teacher_and_student_is_no_stop():
    # Delta = 0: the gate is 1/2 and the value 0, but every token is still pulled up by 1/2.
    logp = torch.tensor([[-1.0]], requires_grad=True)
    loss, seen = opd_loss(logp, logp.detach(), torch.ones(1, 1, dtype=torch.bool))
    loss.sum().backward()
    assert loss.item() == 0 and seen["gate"].item() == 0.5 and logp.grad.item() == -0.5


@pytest.mark.parametrize("loss_of", [opsd_loss, skill_sd_loss])
def test_equal_teacher_and_student_is_a_stop_for_the_others(loss_of):
    logp = torch.tensor([[-1.0]], requires_grad=True)
    loss, _ = loss_of(logp, logp.detach(), torch.ones(1, 1, dtype=torch.bool))
    loss.sum().backward()
    assert loss.item() == 0 and logp.grad.item() == 0


def test_beta_zero_is_a_gate_of_one_half():
    _, seen = opd_loss(torch.tensor([[-3.0, -0.1]]), torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2, dtype=torch.bool), beta=0.0)
    assert seen["gate"].tolist() == [0.5, 0.5]


@every_loss
def test_no_gradient_reaches_the_teacher(loss_of):
    student, teacher = torch.tensor([[-1.0]], requires_grad=True), torch.tensor([[-0.3]], requires_grad=True)
    loss_of(student, teacher, torch.ones(1, 1, dtype=torch.bool))[0].sum().backward()
    assert teacher.grad is None and student.grad.item() != 0


@every_loss
@pytest.mark.parametrize("poison", [1e30, -1e30, float("nan"), float("inf")])
def test_padding_is_never_read(loss_of, poison):
    """Whatever stands there, loss and gradient are those of the one token that counts."""
    mask = torch.tensor([[True, False], [False, False]])

    def run(student, teacher, mask):
        student = torch.tensor(student, requires_grad=True)
        loss, seen = loss_of(student, torch.tensor(teacher), mask, old_BL=torch.tensor(teacher))
        token_mean(loss, mask, 1).backward()
        return loss.detach(), student.grad, seen
    loss, grad, seen = run([[-0.7, poison], [poison, poison]], [[-0.2, poison], [poison, -poison]], mask)
    alone, alone_grad, alone_seen = run([[-0.7]], [[-0.2]], torch.tensor([[True]]))
    assert torch.equal(loss[mask], alone[0]) and torch.equal(grad[mask], alone_grad[0]) and grad[mask].item() != 0
    assert loss[~mask].tolist() == [0, 0, 0] and grad[~mask].tolist() == [0, 0, 0]
    assert all(torch.equal(seen[name], alone_seen[name]) for name in seen)


def test_opd_pulls_every_sampled_token_up():
    student = torch.tensor([[-0.7, -0.7, -0.7]], requires_grad=True)
    opd_loss(student, torch.tensor([[-0.2, -0.7, -1.2]]), torch.ones(1, 3, dtype=torch.bool))[0].sum().backward()
    up = -student.grad[0]
    assert up[0] > 0.9 and up[1] == 0.5 and 0 < up[2] < 0.1   # endorsed, neutral, not endorsed


def test_no_gradient_through_the_gate():
    """The gradient is the gate's value alone: with another ell in the gate only, it would not change."""
    student = torch.tensor([[-0.7]], requires_grad=True)
    loss, seen = opd_loss(student, torch.tensor([[-0.5]]), torch.ones(1, 1, dtype=torch.bool))
    loss.sum().backward()
    assert not seen["gate"].requires_grad and student.grad.item() == pytest.approx(-torch.sigmoid(torch.tensor(1.0)).item(), abs=1e-6)


def test_a_constant_gate_moves_nothing_in_expectation():
    logits = P.log().clone().requires_grad_()
    loss, _ = opd_loss(logits.log_softmax(0)[:, None], Q.log()[:, None], torch.ones(4, 1, dtype=torch.bool), beta=0.0)
    (P * loss[:, 0]).sum().backward()
    assert logits.grad.abs().max() < 1e-12


def test_in_a_group_of_equal_rewards_the_distillation_still_acts():
    from seed.grpo import clipped_surrogate, group_advantages
    logp = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    mask = torch.ones(2, 1, dtype=torch.bool)
    advantages, _ = group_advantages(torch.zeros(2), torch.zeros(2, dtype=torch.long))
    rl, _ = clipped_surrogate(logp, logp.detach(), advantages, mask)
    opd, _ = opd_loss(logp, torch.tensor([[-0.1], [-4.0]]), mask)
    (rl + opd).sum().backward()
    assert logp.grad[0].item() < -0.9 and -0.1 < logp.grad[1].item() < 0


@every_loss
def test_all_masked_is_zero(loss_of):
    student = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    loss, seen = loss_of(student, torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    loss.sum().backward()
    assert loss.sum().item() == 0 and student.grad.abs().sum() == 0 and seen["delta"].numel() == 0


def test_a_trajectory_without_a_skill_weighs_nothing_but_counts_in_the_mean():
    student = torch.full((2, 1), -1.0, requires_grad=True)
    mask = torch.tensor([[True], [True]])
    taught = torch.tensor([[True], [False]])
    loss, _ = opd_loss(student, torch.zeros(2, 1), mask & taught)
    token_mean(loss, mask, 2).backward()
    alone = torch.full((1, 1), -1.0, requires_grad=True)
    opd_loss(alone, torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))[0].sum().backward()
    assert student.grad[1].item() == 0 and student.grad[0].item() == pytest.approx(alone.grad.item() / 2) and alone.grad.item() != 0
