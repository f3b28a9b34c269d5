"""Group-relative policy optimisation: the outcome-based half of the objective, L_rl.

In the paper: Stage 2, A_{q,n} = (R(tau_q^(n)) - mu_q) / (sigma_q + eps), broadcast to all tokens of the trajectory, a
PPO-clipped surrogate and a KL penalty to the initial (SFT) policy.

Pure functions of tensors; this file imports torch and nothing else.
Shapes: N trajectories, B rows (one row a step), L action tokens of the longest row. mask_BL is True on action tokens.
Losses come back per token, [B, L], exactly 0 outside the mask, whatever stands there; `token_mean` averages them.

Choices that papers leave open:
1. mu and sigma are over the N trajectories of a group (the authors' training code takes them over all of their steps, with
   the penalties in); sigma has N - 1 in the denominator, as theirs (one success in eight: A = 2.47).
2. A group whose members all got the same reward has A = 0 exactly. The invalid-action penalty, which is given per step, is
   divided by sigma + eps as the rewards are; in such a group sigma is 0, and 0.1 / eps would be 100,000: there it is taken
   as it is (`scale_N` is 1 / (sigma + eps), or 1).
"""
import torch


def group_advantages(rewards_N: torch.Tensor, groups_N: torch.Tensor, eps: float = 1e-6):
    """(A_N, scale_N): A = (R - mu) / (sigma + eps) within each group, and 1 / (sigma + eps), or 1 where sigma is 0.

    Source: the paper's group-relative advantage (Stage 2). rewards_N: R(tau); groups_N: integer group ids in any order.
    """
    advantages_N, scale_N = torch.zeros_like(rewards_N), torch.ones_like(rewards_N)
    for group in groups_N.unique():
        members = groups_N == group
        rewards = rewards_N[members]
        if len(rewards) > 1 and rewards.max() > rewards.min():
            scale = 1 / (rewards.std(correction=1) + eps)
            advantages_N[members] = (rewards - rewards.mean()) * scale
            scale_N[members] = scale
    return advantages_N, scale_N


def step_advantages(advantages_N, scale_N, trajectory_B, invalid_B, penalty: float):
    """A_B = (R - penalty * [invalid] - mu) / (sigma + eps): the penalty is taken off that step's score, not off R(tau).

    trajectory_B: to which trajectory a row belongs; invalid_B: True where the reply was malformed.
    """
    return advantages_N[trajectory_B] - penalty * invalid_B * scale_N[trajectory_B]


def clipped_surrogate(logp_BL, old_BL, advantages, mask_BL, clip: float = 0.2):
    """(loss_BL, ratio_BL): - min(r A, clip(r, 1 - clip, 1 + clip) A), r = exp(ell - ell_old).

    advantages: [B], the same for all tokens of a row, or [B, L].
    On policy (ell = ell_old) its value is just - A, which averages to 0 over equally long trajectories, while its gradient is
    - A * grad ell.
    """
    logp_BL, old_BL = logp_BL.where(mask_BL, 0.0), old_BL.where(mask_BL, 0.0)
    ratio_BL = (logp_BL - old_BL).exp()
    advantages_BL = advantages if advantages.dim() == 2 else advantages[:, None]
    loss_BL = -torch.minimum(ratio_BL * advantages_BL, ratio_BL.clamp(1 - clip, 1 + clip) * advantages_BL)
    return loss_BL.where(mask_BL, 0.0), ratio_BL


def kl_k3(logp_BL, reference_BL, mask_BL):
    """KL(pi || pi_ref) on tokens sampled from pi, estimator k3: exp(d) - 1 - d with d = ell_ref - ell.

    Never negative, and unbiased: E_pi[exp(d)] = 1 and E_pi[-d] = KL. With d reversed it is neither.
    """
    d_BL = (reference_BL - logp_BL).where(mask_BL, 0.0)
    return d_BL.exp() - 1 - d_BL


def token_mean(values_BL, mask_BL, tokens: float):
    """Sum over the mask divided by `tokens`: the action tokens of the whole optimisation step, not of this micro-batch."""
    return values_BL.where(mask_BL, 0.0).sum() / tokens
