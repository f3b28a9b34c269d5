"""seed/grpo.py against values worked out by hand and against exact enumeration over a four-token vocabulary."""
import math

import pytest
import torch

from seed.grpo import clipped_surrogate, group_advantages, kl_k3, step_advantages, token_mean

P = torch.tensor([0.5, 0.2, 0.25, 0.05], dtype=torch.double)      # asymmetric, far from uniform
Q = torch.tensor([0.1, 0.6, 0.1, 0.2], dtype=torch.double)
ONE = torch.ones(1, 1, dtype=torch.bool)


def test_one_success_in_eight_by_hand():
    # mean 1/8, standard deviation with n - 1: sqrt((7/8)/8 * 8/7) = sqrt(1/8), A = (7/8) / sqrt(1/8) = 2.4749
    advantages, scale = group_advantages(torch.tensor([1.0] + [0.0] * 7), torch.zeros(8, dtype=torch.long))
    assert advantages[0].item() == pytest.approx(2.4749, abs=1e-3)
    assert advantages[1].item() == pytest.approx(-0.35355, abs=1e-4)
    assert scale[0].item() == pytest.approx(math.sqrt(8), abs=1e-3)


def test_any_positive_reward_constant_gives_the_same_advantages():
    rewards, groups = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]), torch.zeros(5, dtype=torch.long)
    a, b = group_advantages(rewards, groups)[0], group_advantages(10 * rewards, groups)[0]
    assert torch.allclose(a, b, atol=1e-5) and a.abs().max() > 0.5


def test_groups_do_not_mix_and_sum_to_zero():
    torch.manual_seed(0)
    groups = torch.tensor([2, 0, 1, 0, 2, 1, 0, 2, 1])
    rewards = torch.randn(9) + 5.0 * groups
    advantages, _ = group_advantages(rewards, groups)
    for group in range(3):
        assert advantages[groups == group].sum().item() == pytest.approx(0, abs=1e-5)
        assert advantages[groups == group].std().item() == pytest.approx(1, abs=1e-3)
    order = torch.randperm(9)
    assert torch.equal(group_advantages(rewards[order], groups[order])[0], advantages[order])


def test_equal_rewards_and_single_members_give_no_advantage():
    advantages, scale = group_advantages(torch.tensor([10.0, 10.0, 3.0]), torch.tensor([0, 0, 1]))
    assert advantages.tolist() == [0, 0, 0] and scale.tolist() == [1, 1, 1]


def test_penalty_comes_off_its_own_step():
    advantages, scale = group_advantages(torch.tensor([10.0, 0.0]), torch.tensor([0, 0]))
    rows = step_advantages(advantages, scale, torch.tensor([0, 0, 1]), torch.tensor([False, True, False]), 0.1)
    sigma = math.sqrt(50.0)
    assert rows[0].item() == pytest.approx(5 / sigma, abs=1e-5)
    assert rows[1].item() == pytest.approx((5 - 0.1) / sigma, abs=1e-5)   # (R - c - mu) / sigma
    assert rows[2].item() == pytest.approx(-5 / sigma, abs=1e-5)
    # in a group of equal rewards the penalty is not blown up by 1 / eps
    flat, one = group_advantages(torch.tensor([0.0, 0.0]), torch.tensor([0, 0]))
    assert step_advantages(flat, one, torch.tensor([0, 1]), torch.tensor([True, False]), 0.1).tolist() == pytest.approx([-0.1, 0])


def test_k3_is_the_exact_kl_in_expectation():
    k3 = kl_k3(P.log()[:, None], Q.log()[:, None], torch.ones(4, 1, dtype=torch.bool))[:, 0]
    exact = (P * (P / Q).log()).sum()
    assert exact > 0.5 and (P * k3).sum().item() == pytest.approx(exact.item(), abs=1e-12)
    assert (k3 > 0).all()
    reversed_sign = kl_k3(Q.log()[:, None], P.log()[:, None], torch.ones(4, 1, dtype=torch.bool))[:, 0]
    assert abs((P * reversed_sign).sum() - exact) > 0.2  # these numbers can tell the two apart


def test_k3_gradient_by_enumeration():
    # E_pi[grad k3] = sum (pi - ref) grad log pi
    logits = P.log().clone().requires_grad_()
    logp = logits.log_softmax(0)
    k3 = kl_k3(logp[:, None], Q.log()[:, None], torch.ones(4, 1, dtype=torch.bool))[:, 0]
    (P * k3).sum().backward()
    assert torch.allclose(logits.grad, P - Q, atol=1e-12) and logits.grad.abs().max() > 0.3


def test_surrogate_gradient_is_the_policy_gradient_by_enumeration():
    rewards = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.double)
    logits = P.log().clone().requires_grad_()
    logp = logits.log_softmax(0)
    loss, ratio = clipped_surrogate(logp[:, None], logp.detach()[:, None], rewards, torch.ones(4, 1, dtype=torch.bool))
    (P * loss[:, 0]).sum().backward()
    exact = P * (rewards - (P * rewards).sum())           # d/dlogits of E[reward]
    assert torch.allclose(logits.grad, -exact, atol=1e-12) and torch.equal(ratio, torch.ones_like(ratio))


def test_on_policy_the_loss_is_zero_and_the_gradient_is_not():
    logp = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
    mask = torch.ones(2, 1, dtype=torch.bool)
    loss, _ = clipped_surrogate(logp, logp.detach(), torch.tensor([1.0, -1.0]), mask)
    total = token_mean(loss, mask, 2)
    total.backward()
    assert total.item() == 0 and logp.grad.tolist() == [[-0.5], [0.5]]


@pytest.mark.parametrize("ratio, advantage, value, gradient", [
    (1.5, 1.0, -1.2, 0.0),        # already 20 % more likely: no further push
    (1.5, -1.0, 1.5, 1.5),        # more likely and bad: pushed down
    (0.5, 1.0, -0.5, -0.5),       # less likely and good: pushed up
    (0.5, -1.0, 0.8, 0.0),
    (1.1, 2.0, -2.2, -2.2),
])
def test_clipping_by_hand(ratio, advantage, value, gradient):
    logp = torch.full((1, 1), math.log(ratio) - 1.0, requires_grad=True)
    loss, _ = clipped_surrogate(logp, torch.full((1, 1), -1.0), torch.tensor([advantage]), ONE, clip=0.2)
    loss.sum().backward()
    assert loss.item() == pytest.approx(value, abs=1e-5) and logp.grad.item() == pytest.approx(gradient, abs=1e-5)


def test_equal_groups_give_no_policy_gradient_but_kl_still_acts():
    logp = torch.tensor([[-1.0, -0.5]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    advantages, _ = group_advantages(torch.tensor([10.0, 10.0]), torch.tensor([0, 0]))
    surrogate, _ = clipped_surrogate(logp, logp.detach(), advantages[:1], mask)
    surrogate.sum().backward()
    assert logp.grad.abs().sum() == 0
    kl_k3(logp, torch.tensor([[-2.0, -0.1]]), mask).sum().backward()
    assert logp.grad.abs().min() > 0.3


@pytest.mark.parametrize("loss", [
    lambda logp, mask: clipped_surrogate(logp, torch.zeros_like(logp), torch.ones(2), mask)[0],
    lambda logp, mask: kl_k3(logp, torch.zeros_like(logp), mask)])
@pytest.mark.parametrize("poison", [1e30, -1e30, float("nan"), float("inf")])
def test_padding_is_never_read(loss, poison):
    mask = torch.tensor([[True, False], [False, False]])
    logp = torch.tensor([[-0.7, poison], [poison, poison]], requires_grad=True)
    values = loss(logp, mask)
    token_mean(values, mask, 1).backward()
    assert values[~mask].tolist() == [0, 0, 0] and logp.grad[~mask].tolist() == [0, 0, 0]
    assert logp.grad[0, 0].abs() > 0.1 and torch.isfinite(values).all()


def test_all_masked_is_zero_with_zero_gradient():
    logp = torch.tensor([[-1.0]], requires_grad=True)
    mask = torch.zeros(1, 1, dtype=torch.bool)
    token_mean(clipped_surrogate(logp, logp.detach() - 1, torch.ones(1), mask)[0] + kl_k3(logp, logp.detach() - 1, mask), mask, 3).backward()
    assert logp.grad.item() == 0


def test_micro_batches_add_up():
    torch.manual_seed(0)
    logp, old, advantages = torch.randn(4, 5), torch.randn(4, 5), torch.randn(4)
    mask = torch.arange(5) < torch.tensor([5, 1, 3, 2])[:, None]
    grads = []
    for size in (4, 2, 1):
        x = logp.clone().requires_grad_()
        for i in range(0, 4, size):
            part = slice(i, i + size)
            loss, _ = clipped_surrogate(x[part], old[part], advantages[part], mask[part])
            token_mean(loss, mask[part], int(mask.sum())).backward()
        grads.append(x.grad)
    assert torch.allclose(grads[0], grads[1]) and torch.allclose(grads[0], grads[2]) and grads[0].abs().max() > 0.05


def test_imports_torch_and_nothing_else():
    import ast
    from pathlib import Path
    for name in ("grpo", "losses"):
        tree = ast.parse((Path(__file__).parents[1] / f"seed/{name}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert imported == {"torch"}
