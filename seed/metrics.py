"""What an update reports about itself, and when it stops the run.

Not in the paper, which shows success, episode length and the OPD loss (Figures 3 and 9). A method can be silently off while
every curve looks healthy: the teacher never sees the skill, the adapter is frozen, replies run to the token limit. The
numbers here show it, and `check_*` stop a run that cannot be right. The README has the glossary, with healthy ranges.
"""
import math
import resource
import time
from collections import Counter, defaultdict

import torch

from seed.errors import UserError
from seed.evaluation import summarise


class Meter:
    """Sums over the action tokens of an update, and the seconds of its stages."""

    def __init__(self):
        self.sums, self.seconds, self.last = defaultdict(float), {}, time.time()

    def add(self, name: str, value) -> None:
        self.sums[name] += float(value)

    def lap(self, stage: str) -> None:
        now = time.time()
        self.seconds[stage], self.last = round(now - self.last, 2), now

    def add_distillation(self, delta_N: torch.Tensor, gate_N: torch.Tensor) -> None:
        """Delta and gate of the tokens that had a teacher."""
        for name, values in (("taught", torch.ones_like(delta_N)), ("delta", delta_N), ("delta_abs", delta_N.abs()),
                             ("delta_squared", delta_N ** 2), ("gate", gate_N), ("gate_open", gate_N > 0.5)):
            self.add(name, values.sum())


def update_metrics(meter: Meter, trajectories, answers, crashed, has_teacher: bool) -> dict:
    """The line of metrics.jsonl for one update. `answers`: token ids of the analyses."""
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    sums, tokens, played = meter.sums, meter.sums["tokens"], summarise(trajectories)
    rewards = defaultdict(set)
    for trajectory in trajectories:
        rewards[trajectory.group].add(trajectory.reward)
    metrics = {
        "success": played["success"], "success_by_type": {kind: r["success"] for kind, r in played["by_type"].items()},
        "turns": played["mean_turns"], "malformed": played["malformed"], "inadmissible": played["inadmissible"],
        "ended": sum(step.ended for step in steps) / len(steps), "reply_tokens": tokens / len(steps), "crashed": len(crashed),
        "equal_groups": sum(len(seen) == 1 for seen in rewards.values()) / len(rewards),
        **{name: sums[name] / tokens for name in ("rl_loss", "kl", "entropy", "clipped")}, "grad_norm": sums["grad_norm"]}
    if has_teacher:
        taught = max(1.0, sums["taught"])
        mean = sums["delta"] / taught
        metrics |= {
            "opd_loss": sums["opd_loss"] / tokens, "taught_tokens": sums["taught"] / tokens,
            "skill_valid": sum(t.skill is not None for t in trajectories) / len(trajectories),
            "skill_errors": Counter(t.skill_error for t in trajectories if t.skill_error),
            "skill_tokens": sum(map(len, answers)) / max(1, len(answers)), "delta_mean": mean,
            "delta_abs": sums["delta_abs"] / taught, "delta_std": math.sqrt(max(0.0, sums["delta_squared"] / taught - mean ** 2)),
            "gate_mean": sums["gate"] / taught, "gate_open": sums["gate_open"] / taught,
            **{name: sums[name] for name in ("gradient_ratio", "gradient_cosine") if name in sums}}
    return metrics | {"tokens": int(tokens), "prompt_tokens": sum(len(step.prompt_ids) for step in steps),
                      "seconds": meter.seconds, "peak_memory_gb": peak_memory()}


def peak_memory() -> float:
    """In GiB: of the CUDA device where there is one, else of this process."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 2 ** 30, 2)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20, 2)


def compare_gradients(parameters, distilled: list[torch.Tensor]) -> tuple[float, float]:
    """(|lambda grad L_opd| / |grad L_rl|, their cosine). `distilled`: lambda grad L_opd; the parameters' .grad is the sum."""
    dot = lambda xs, ys: sum((x * y).sum() for x, y in zip(xs, ys)).item()
    rl = [p.grad - d for p, d in zip(parameters, distilled)]
    rl_norm, opd_norm = math.sqrt(dot(rl, rl)), math.sqrt(dot(distilled, distilled))
    if rl_norm == 0 or opd_norm == 0:
        return (math.inf if opd_norm else 0.0), 0.0
    return opd_norm / rl_norm, dot(rl, distilled) / (rl_norm * opd_norm)


def check_replies(trajectories, update: int) -> None:
    """In the first update: a model that never ends its turn has not been given its chat template, or is none for chat."""
    if update == 0 and not any(step.ended for t in trajectories for step in t.steps):
        raise UserError("no reply of the first update ended by itself, all ran to --max-reply-tokens: the model does not know "
                        "its end-of-turn token (is it an instruct model?), or --max-reply-tokens is far too small")


def check_finite(value, what: str, update: int, where: str = "") -> None:
    """Stop the run at the first value (a number, a list, a tensor) that is not finite, and say where it came from."""
    if not torch.isfinite(torch.as_tensor(value)).all():
        raise UserError(f"update {update + 1}: the {what} is not finite{where and ', in ' + where}; the last checkpoint is "
                        f"kept: go on from it with a smaller --learning-rate in a new run (--init)")


def warnings(metrics: dict) -> list[str]:
    """What has left its healthy range; a hint on the screen, not a stop."""
    tests = [(metrics["entropy"] < 0.02, "entropy is near 0: the policy has all but stopped exploring"),
             (metrics["malformed"] > 0.5, "more than half of the replies are malformed"),
             (metrics["ended"] < 0.5, "more than half of the replies run to --max-reply-tokens"),
             (metrics["equal_groups"] == 1, "in every group all rewards are equal: no policy gradient in this update"),
             (metrics.get("skill_valid", 1) == 0, "no analysis was usable: the distillation is off in this update")]
    return [text for test, text in tests if test]
