"""The distillation losses: what a teacher that has seen the skill adds to the reward.

In the paper: section 3, L_opd, and L_seed = L_rl + lambda * L_opd. The same policy scores the same sampled tokens twice:
    ell_skill = log pi_theta(a_l | h~, a_<l)   teacher: the context holds the hindsight skill; no gradient
    ell       = log pi_theta(a_l | h,  a_<l)   student: the plain context that it acted in

Pure functions of log-probs and masks; this file imports torch and nothing else. It is the file to edit for an assignment.
Shapes: B rows (one row a step), L action tokens of the longest row. mask_BL (the paper's m) is True on the action tokens of
trajectories that have a usable skill. A loss comes back per token, [B, L], exactly 0 outside the mask, and is averaged over
all action tokens of the optimisation step, masked or not (`grpo.token_mean`): a trajectory without a skill weighs nothing.
"""
import torch


def opd_loss(logp_BL: torch.Tensor, teacher_BL: torch.Tensor, mask_BL: torch.Tensor, beta: float = 5.0):
    """SEED's gated on-policy distillation: (loss_BL, metrics).

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
