"""The methods as one table: what each acts with, what its teacher sees, and what it makes of the teacher.

In the paper: the rows of Table 1. SEED differs from GRPO in its last columns and in nothing else: same rollouts, same
advantages, same optimiser. Two rows of the table are evaluations: `skill-grpo` is evaluated with and without the skills that
it trained with, and `vanilla` and `skill-prompt` train nothing.

The paper's ablations are rows, too: SEED without Stage 1 is `--method seed --init base`; without distillation
`--method grpo`, started from Stage 1's result as all methods here; with library skills `--method sdar`.

How it differs from the paper:
1. All methods start from Stage 1's result (`--init auto`), so that a comparison shows the objective alone; the paper's
   baselines start from the base model (`--init base`).
"""
from dataclasses import dataclass
from typing import Callable

from seed.losses import opd_loss, opsd_loss, rlsd_advantages, skill_sd_loss


@dataclass(frozen=True)
class Method:
    acts_with: str | None = None      # skill in the context while playing in training: None or "library"
    teacher: str | None = None        # skill in the teacher's context: None (no teacher), "hindsight" (the trajectory's own, by
                                      # the policy), "library" (static), "grown" (a library of the policy's own skills), "expert"
                                      # and "workflow" (the trajectory's own, by rules, with and without the places of its objects),
                                      # "other" (like hindsight, but that of another task's trajectory)
    loss: Callable | None = None      # (logp_BL, teacher_BL, mask_BL, beta, old_BL) -> (loss_BL, metrics), weighted by lambda
    credit: Callable | None = None    # (advantages_B, logp_BL, teacher_BL, mask_BL) -> (advantages_BL, metrics)
    reward: bool = True               # is L_rl in the objective? Without it the loss stands alone, its weight 1
    trains: bool = True


METHODS = {
    "vanilla":      Method(trains=False),
    "skill-prompt": Method("library", trains=False),
    "grpo":         Method(),
    "skill-grpo":   Method("library"),
    "opsd":         Method(teacher="library", loss=opsd_loss, reward=False),
    "grpo+opsd":    Method(teacher="library", loss=opsd_loss),
    "skill-sd":     Method(teacher="grown", loss=skill_sd_loss),
    "rlsd":         Method(teacher="library", credit=rlsd_advantages),
    "sdar":         Method(teacher="library", loss=opd_loss),
    "seed":         Method(teacher="hindsight", loss=opd_loss),
    # Not in the paper: SEED with an analyzer that makes no mistakes, for the question what better skills would bring (ALFWorld).
    "seed-expert":   Method(teacher="expert", loss=opd_loss),
    "seed-workflow": Method(teacher="workflow", loss=opd_loss),
    # Nor this: SEED whose skills are about something else. What it does as well as SEED is not due to what the skills say.
    "seed-other":    Method(teacher="other", loss=opd_loss),
}
