"""seed/losses.py against values worked out by hand and against exact enumeration over a four-token vocabulary."""
import math

import pytest
import torch

from seed.grpo import token_mean
from seed.losses import opd_loss

P = torch.tensor([0.5, 0.2, 0.25, 0.05], dtype=torch.double)
Q = torch.tensor([0.1, 0.6, 0.1, 0.2], dtype=torch.double)


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


def test_opd_raises_what_the_skill_endorses_relative_to_the_rest():
    logits = torch.zeros(3, requires_grad=True)
    teacher = torch.tensor([0.8, 0.1, 0.1]).log()
    loss, _ = opd_loss(logits.log_softmax(0)[:, None], teacher[:, None], torch.ones(3, 1, dtype=torch.bool))
    (logits.detach().softmax(0) * loss[:, 0]).sum().backward()
    after = (logits - logits.grad).softmax(0)
    assert after[0] > 1 / 3 > after[1]


def test_equal_teacher_and_student_is_no_stop():
    # Delta = 0: the gate is 1/2 and the value 0, but every token is still pulled up by 1/2.
    logp = torch.tensor([[-1.0]], requires_grad=True)
    loss, seen = opd_loss(logp, logp.detach(), torch.ones(1, 1, dtype=torch.bool))
    loss.sum().backward()
    assert loss.item() == 0 and seen["gate"].item() == 0.5 and logp.grad.item() == -0.5


def test_beta_zero_is_a_gate_of_one_half():
    _, seen = opd_loss(torch.tensor([[-3.0, -0.1]]), torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2, dtype=torch.bool), beta=0.0)
    assert seen["gate"].tolist() == [0.5, 0.5]


def test_no_gradient_reaches_the_teacher():
    student, teacher = torch.tensor([[-1.0]], requires_grad=True), torch.tensor([[-0.3]], requires_grad=True)
    opd_loss(student, teacher, torch.ones(1, 1, dtype=torch.bool))[0].sum().backward()
    assert teacher.grad is None and student.grad.item() < -0.5


@pytest.mark.parametrize("poison", [1e30, -1e30, float("nan"), float("inf")])
def test_padding_is_never_read(poison):
    mask = torch.tensor([[True, False], [False, False]])
    student = torch.tensor([[-0.7, poison], [poison, poison]], requires_grad=True)
    teacher = torch.tensor([[-0.2, poison], [poison, -poison]])
    loss, seen = opd_loss(student, teacher, mask)
    token_mean(loss, mask, 1).backward()
    assert loss[~mask].tolist() == [0, 0, 0] and student.grad[~mask].tolist() == [0, 0, 0]
    assert student.grad[0, 0] < -0.5 and seen["gate"].shape == (1,)


def test_in_a_group_of_equal_rewards_the_distillation_still_acts():
    from seed.grpo import clipped_surrogate, group_advantages
    logp = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    mask = torch.ones(2, 1, dtype=torch.bool)
    advantages, _ = group_advantages(torch.zeros(2), torch.zeros(2, dtype=torch.long))
    rl, _ = clipped_surrogate(logp, logp.detach(), advantages, mask)
    opd, _ = opd_loss(logp, torch.tensor([[-0.1], [-4.0]]), mask)
    (rl + opd).sum().backward()
    assert logp.grad[0].item() < -0.9 and -0.1 < logp.grad[1].item() < 0


def test_all_masked_is_zero():
    student = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    loss, seen = opd_loss(student, torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    loss.sum().backward()
    assert loss.sum().item() == 0 and student.grad.abs().sum() == 0 and seen["delta"].numel() == 0


def test_a_trajectory_without_a_skill_weighs_nothing_but_counts_in_the_mean():
    student = torch.full((2, 1), -1.0, requires_grad=True)
    mask = torch.tensor([[True], [True]])
    taught = torch.tensor([[True], [False]])
    loss, _ = opd_loss(student, torch.zeros(2, 1), mask & taught)
    token_mean(loss, mask, 2).backward()
    assert student.grad[1].item() == 0 and student.grad[0].item() == pytest.approx(-torch.sigmoid(torch.tensor(5.0)).item() / 2)
