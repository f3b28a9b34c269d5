"""The distillation losses: what a teacher that has seen a skill adds to the reward.

In the paper: Stage 2, L_opd, and L_seed = L_rl + lambda * L_opd; the siblings are those of Table 1's other methods (which
method uses which: `seed/methods.py`). The same policy scores the same sampled tokens twice:
    ell_skill = log pi_theta(a_l | h~, a_<l)   teacher: the context holds a skill; no gradient
    ell       = log pi_theta(a_l | h,  a_<l)   student: the plain context that it acted in
    D         = ell_skill - ell                Delta = sg[D]: how much more likely the skill makes the token

Pure functions of log-probs and masks; this file imports torch and nothing else. It is the file to edit for an assignment.
Shapes: B rows (one row a step), L action tokens of the longest row. mask_BL (the paper's m) is True on the action tokens of
trajectories that have a usable skill. A loss comes back per token, [B, L], exactly 0 outside the mask, and is averaged over
all action tokens of the optimisation step, masked or not (`grpo.token_mean`): a trajectory without a skill weighs nothing.
All take the same arguments, so that the loop can call any of them: beta is the gate's, old_BL (ell_old, the policy that
played; None: the policy as it is now) that of the importance ratio.

Why this is not just self-imitation: for tokens drawn from the student itself, E[grad ell] = sum_a pi(a) grad log pi(a) = grad 1 = 0.
A gate that is the same for all tokens would pull every sampled token up and move the policy nowhere, in expectation; what
teaches is how the gate (or Delta) *varies*: tokens above the average gain at the cost of those below.

How it differs from the papers: the sums over the vocabulary that OPSD and Skill-SD can take for their divergences are
estimated here on the sampled tokens alone, as SEED does; nothing else is stored.
"""
import torch


def opd_loss(logp_BL: torch.Tensor, teacher_BL: torch.Tensor, mask_BL: torch.Tensor, beta: float = 5.0, old_BL=None):
    """SEED's (and SDAR's, arXiv 2605.15155) gated on-policy distillation: (loss_BL, metrics).

    Delta = sg[ell_skill - ell]           how much more likely the skill makes the token
    g     = sigmoid(beta * Delta)         the gate, no gradient: near 1 where the skill endorses the token, near 0 where not
    L_opd = g * (sg[ell_skill] - ell)     so the gradient is - g * grad ell: every sampled token is pulled up, and the more
                                          so the more the skill endorses it; none is pushed down
    """
    logp_BL, teacher_BL = logp_BL.where(mask_BL, 0.0), teacher_BL.where(mask_BL, 0.0).detach()
    delta_BL = teacher_BL - logp_BL.detach()
    gate_BL = torch.sigmoid(beta * delta_BL)
    loss_BL = gate_BL * (teacher_BL - logp_BL)
    return loss_BL.where(mask_BL, 0.0), {"delta": delta_BL[mask_BL], "gate": gate_BL[mask_BL]}


def opsd_loss(logp_BL: torch.Tensor, teacher_BL: torch.Tensor, mask_BL: torch.Tensor, beta: float = 5.0, old_BL=None):
    """OPSD's (arXiv 2601.18734) reverse KL on the sampled tokens: (loss_BL, metrics).

    L = - Delta * ell      the gradient, - Delta * grad ell, is that of KL(pi(. | h) || pi(. | h~)) in expectation over tokens
                           drawn from pi(. | h): endorsed tokens go up and all others down, in proportion to Delta; no gate
    """
    logp_BL, teacher_BL = logp_BL.where(mask_BL, 0.0), teacher_BL.where(mask_BL, 0.0).detach()
    delta_BL = teacher_BL - logp_BL.detach()
    loss_BL = -delta_BL * logp_BL
    return loss_BL.where(mask_BL, 0.0), {"delta": delta_BL[mask_BL]}


def skill_sd_loss(logp_BL: torch.Tensor, teacher_BL: torch.Tensor, mask_BL: torch.Tensor, beta: float = 5.0, old_BL=None):
    """Skill-SD's (arXiv 2604.10674) importance-weighted k3: (loss_BL, metrics).

    rho = exp(ell - ell_old)      corrects for tokens that an older policy sampled
    k3  = exp(D) - 1 - D          the low-variance estimate of KL(pi(. | h) || pi(. | h~)); gradient through ell in D and rho
    L   = rho * k3                so that the gradient's expectation is that of the KL itself, at ell = ell_old too
    """
    logp_BL, teacher_BL = logp_BL.where(mask_BL, 0.0), teacher_BL.where(mask_BL, 0.0).detach()
    old_BL = logp_BL.detach() if old_BL is None else old_BL.where(mask_BL, 0.0).detach()
    delta_BL = teacher_BL - logp_BL
    loss_BL = (logp_BL - old_BL).exp() * (delta_BL.exp() - 1 - delta_BL)
    return loss_BL.where(mask_BL, 0.0), {"delta": delta_BL.detach()[mask_BL]}


def rlsd_advantages(advantages_B: torch.Tensor, logp_BL: torch.Tensor, teacher_BL: torch.Tensor, mask_BL: torch.Tensor,
                    mix: float = 0.5, eps_w: float = 0.2):
    """RLSD's (arXiv 2604.03128) credit by token, no loss of its own: (advantages_BL, metrics), for `grpo.clipped_surrogate`.

    w   = clip(exp(sign(A) * Delta), 1 - eps_w, 1 + eps_w)     the reward says which way, the teacher says how far
    A_l = A * ((1 - mix) + mix * w)                            outside the mask A_l = A
    """
    delta_BL = (teacher_BL - logp_BL).detach().where(mask_BL, 0.0)
    advantages_B1 = advantages_B[:, None]
    weight_BL = (advantages_B1.sign() * delta_BL).exp().clamp(1 - eps_w, 1 + eps_w)
    return advantages_B1 * ((1 - mix) + mix * weight_BL), {"delta": delta_BL[mask_BL]}
