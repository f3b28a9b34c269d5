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
    """Sums over the action tokens of an update; seconds and peak memory of its stages."""

    def __init__(self):
        self.sums, self.seconds, self.memory, self.last = defaultdict(float), {}, {}, time.time()

    def add(self, name: str, value) -> None:
        self.sums[name] += float(value)

    def lap(self, stage: str) -> None:
        now = time.time()
        self.seconds[stage], self.last = round(now - self.last, 2), now
        self.memory[stage] = peak_memory()

    def add_distillation(self, delta: torch.Tensor, gate: torch.Tensor | None = None) -> None:
        """Delta and gate (where the method has one) of the tokens that had a teacher, [N] each."""
        for name, values in (("taught", torch.ones_like(delta)), ("delta", delta), ("delta_abs", delta.abs()), ("delta_squared", delta ** 2)):
            self.add(name, values.sum())
        if gate is not None:
            self.add("gate", gate.sum())
            self.add("gate_open", (gate > 0.5).sum())


def update_metrics(meter: Meter, trajectories, answers, crashed, has_teacher: bool) -> dict:
    """The line of metrics.jsonl for one update. `answers`: token ids of the analyses."""
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    sums, tokens, played = meter.sums, meter.sums["tokens"], summarise(trajectories)
    rewards = defaultdict(set)
    for trajectory in trajectories:
        rewards[trajectory.group].add(trajectory.reward)
    metrics = {
        "success": played["success"], "success_by_type": {kind: r["success"] for kind, r in played["by_type"].items()},
        "score": played["mean_score"], "turns": played["mean_turns"], "malformed": played["malformed"], "inadmissible": played["inadmissible"],
        "ended": sum(step.ended for step in steps) / len(steps), "reply_tokens": tokens / len(steps), "crashed": len(crashed),
        "equal_groups": sum(len(seen) == 1 for seen in rewards.values()) / len(rewards),
        **{name: sums[name] / tokens for name in ("rl_loss", "entropy", "clipped")},
        "sampling_gap": sums["sampling_gap"] / sums["first_tokens"],  # of the first optimisation step
        "kl": sums["kl"] / tokens if "kl" in sums else None, "grad_norm": sums["grad_norm"]}
    if has_teacher:
        analysed = any(t.skill is not None or t.skill_error for t in trajectories)
        taught = sums["taught"] or math.nan  # no token had a teacher: the means below are nan, hence null
        mean = sums["delta"] / taught
        metrics |= {
            "opd_loss": sums["opd_loss"] / tokens if "opd_loss" in sums else None, "taught_tokens": sums["taught"] / tokens,
            "skill_hit": sum(t.taught is not None for t in trajectories) / len(trajectories),
            "skill_valid": sum(t.skill is not None for t in trajectories) / len(trajectories) if analysed else None,
            "skill_errors": Counter(t.skill_error for t in trajectories if t.skill_error),
            "skill_tokens": sum(map(len, answers)) / max(1, len(answers)), "delta_mean": mean,
            "delta_abs": sums["delta_abs"] / taught, "delta_std": abs(sums["delta_squared"] / taught - mean ** 2) ** 0.5,
            **{name: sums[key] / taught if key in sums else None for name, key in (("gate_mean", "gate"), ("gate_open", "gate_open"))},
            **{name: sums.get(name) for name in ("gradient_ratio", "gradient_cosine")}}
    # What was not measured is null, not 0.
    metrics = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in metrics.items()}
    return metrics | {"tokens": int(tokens), "prompt_tokens": sum(len(step.prompt_ids) for step in steps),
                      "seconds": meter.seconds, "peak_memory_gb": meter.memory}


def one_line(metrics: dict) -> str:
    """An update in one line."""
    text = f"success {metrics['success']:.0%}, {metrics['turns']:.1f} turns, entropy {metrics['entropy']:.2f}"
    for name, form in (("skill_valid", ", skills {:.0%} usable"), ("gate_mean", ", gate {:.2f}"), ("opd_loss", ", OPD loss {:.3f}")):
        if metrics.get(name) is not None:
            text += form.format(metrics[name])
    return text + f", {sum(metrics['seconds'].values()):.0f} s"


def peak_memory() -> float:
    """In GiB: of the CUDA device since the last call, where there is one, else of this process since it began."""
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return round(peak / 2 ** 30, 2)
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


def check_skills(trajectories, update: int) -> None:
    """In the first update: without one usable skill there is no teacher, and the method would be another one, silently."""
    if update == 0 and all(t.taught is None for t in trajectories):
        if not any(t.skill_error for t in trajectories):
            raise UserError(f"the skill library has nothing for the tasks of the first update ({trajectories[0].task.type}, ...): add a section "
                            f"of that name to its file in seed/skills")
        reasons = Counter(t.skill_error for t in trajectories).most_common(2)
        raise UserError(f"none of the {len(trajectories)} analyses of the first update is a usable skill ({reasons}): start from Stage 1 "
                        f"(--init auto), or raise --skill-tokens where they are cut off, or take --method grpo")


def check_sampling(metrics: dict, dtype: str) -> None:
    """Re-scored log-probs must be those recorded while sampling, or padding, positions or weights differ between the two."""
    most = 1e-3 if dtype == "float32" else 0.15
    if metrics["update"] == 1 and metrics["sampling_gap"] > most:
        raise UserError(f"re-scored log-probs differ from those recorded while sampling by {metrics['sampling_gap']:.2g} on average "
                        f"(expected below {most} in {dtype}): scores of this model on this device cannot be trusted")


def warnings(metrics: dict) -> list[str]:
    """What has left its healthy range; a hint on the screen, not a stop."""
    tests = [(metrics["entropy"] < 0.02, "entropy is near 0: the policy has all but stopped exploring"),
             (metrics["malformed"] > 0.5, "more than half of the replies are malformed"),
             (metrics["ended"] < 0.5, "more than half of the replies run to --max-reply-tokens"),
             (metrics["equal_groups"] == 1, "in every group all rewards are equal: no policy gradient in this update"),
             (metrics["grad_norm"] > 10, "the gradient's norm is above 10"),
             (metrics.get("skill_valid", 1) == 0, "no analysis was usable: the distillation is off in this update")]
    return [text for test, text in tests if test]
