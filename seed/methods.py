"""The methods as one table: what each one acts with, what its teacher sees, and which loss it adds to L_rl.

In the paper: the rows of Table 1, as far as they are here. SEED differs from GRPO in its last two columns and in nothing
else: same rollouts, same advantages, same optimiser.
"""
from dataclasses import dataclass
from typing import Callable

from seed.losses import opd_loss


@dataclass(frozen=True)
class Method:
    teacher: str | None          # what the teacher's context holds: None (no teacher) or "hindsight", the trajectory's own skill
    loss: Callable | None        # (logp_BL, teacher_BL, mask_BL, beta) -> (loss_BL, metrics), weighted by lambda


METHODS = {
    #               teacher      loss
    "grpo": Method(None,        None),
    "seed": Method("hindsight", opd_loss),
}
