"""Evaluation that others can check: a fixed list of games, every outcome kept, intervals on every number.

In the paper: the success rates of Table 1. Its harness draws games at random for each evaluation slot, and single runs
differ by several points; here an evaluation names its games (a sorted list with a hash), plays each as often as it is told
to, and reports Wilson intervals; two runs are compared game by game on the same list.
"""
import math
import random
from collections import defaultdict

from seed import distributed
from seed.errors import check_finite
from seed.rollout import rollout
from seed.trajectory import Task, Trajectory, manifest_hash


def evaluate(policy, env, tasks: list[Task], config, repeats: int = 1, seed: int = 0, library=None,
             title: str = "evaluating") -> dict:
    """Play each task `repeats` times with the plain policy (or with a library's skills) and summarise. Same seed: same outcomes,
    at any batch size."""
    episodes = [(task, i, copy) for i, task in enumerate(tasks) for copy in range(repeats)]
    mine = episodes[distributed.rank()::distributed.world()]
    played, crashed = map(distributed.gather, rollout(policy, env, mine, f"evaluation {seed}", title=title, library=library,
                                                      **play_options(config, temperature=config.eval_temperature)))
    played.sort(key=lambda t: (t.group, t.copy))
    for t in played:
        check_finite((x for step in t.steps for x in step.logprobs), "log-prob while sampling", f"evaluation, {t.task.id}")
    return {**summarise(played), "crashed": crashed, "repeats": repeats, "temperature": config.eval_temperature,
            "with_skills": library is not None, "seed": seed, "tasks": len(tasks), "manifest": manifest_hash(tasks)}


def spread(tasks: list[Task], number: int | None) -> list[Task]:
    """So many tasks, evenly spread over the sorted list (which begins with all those of one type); None: all of them."""
    if number is None or number >= len(tasks):
        return tasks
    return [tasks[i * len(tasks) // number] for i in range(number)]


def play_options(config, temperature: float) -> dict:
    """The configuration as `rollout` takes it."""
    return dict(max_turns=config.max_turns, history_length=config.history_length, temperature=temperature,
                max_prompt_tokens=config.max_prompt_tokens, max_reply_tokens=config.max_reply_tokens,
                batch_tokens=config.sample_tokens)


def summarise(trajectories: list[Trajectory]) -> dict:
    """Wins and success with its Wilson interval, in all and by task type; turns; shares of bad replies; every outcome."""
    by_type, outcomes = defaultdict(list), defaultdict(list)
    for trajectory in trajectories:
        by_type[trajectory.task.type].append(trajectory)
        outcomes[trajectory.task.id].append(int(trajectory.success))
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    share = lambda test: sum(map(test, steps)) / len(steps) if steps else 0.0
    scored = any(t.score is not None for t in trajectories)  # an episode that came to no end has none, and counts 0
    return {**rate(trajectories), "by_type": {kind: rate(by_type[kind]) for kind in sorted(by_type)},
            "mean_score": sum(t.score or 0.0 for t in trajectories) / len(trajectories) if scored else None,
            "mean_turns": len(steps) / len(trajectories) if trajectories else 0.0,
            "malformed": share(lambda s: not s.valid), "inadmissible": share(lambda s: not s.admissible),
            "outcomes": dict(sorted(outcomes.items()))}


def rate(trajectories: list[Trajectory]) -> dict:
    """Success with its Wilson interval. Plays of one game are no independent trials, so the interval is as wide as if each
    game had been played once."""
    wins, plays, distinct = sum(t.success for t in trajectories), len(trajectories), len({t.task.id for t in trajectories})
    low, high = wilson(wins * distinct / plays if plays else 0, distinct)
    return {"wins": wins, "games": plays, "success": wins / plays if plays else 0.0, "low": low, "high": high}


def wilson(wins: float, games: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % Wilson score interval of a success rate; it holds the rate itself.

    >>> [round(x, 3) for x in wilson(84, 100)], wilson(0, 0)
    ([0.756, 0.899], (0.0, 1.0))
    """
    if games == 0:
        return 0.0, 1.0
    p, z2 = wins / games, z * z / games
    middle = (p + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(p * (1 - p) / games + z2 / (4 * games))
    return min(p, max(0.0, middle - half)), max(p, min(1.0, middle + half))


def compare(a: dict, b: dict, draws: int = 10_000, seed: int = 0) -> dict:
    """Two evaluations of the same games: b - a, paired by game.

    `difference`: mean over games of the difference in success, with a bootstrap 95 % interval over games. `mcnemar_p`: exact
    two-sided test on the games where one run does better (repeats of a game are averaged first), null: as often one as
    the other.
    """
    if set(a["outcomes"]) != set(b["outcomes"]):
        raise ValueError("the two evaluations were not of the same games")
    mean = lambda x: sum(x) / len(x)
    differences = [mean(b["outcomes"][game]) - mean(a["outcomes"][game]) for game in a["outcomes"]]
    rng = random.Random(seed)
    means = sorted(mean(rng.choices(differences, k=len(differences))) for _ in range(draws))
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return {"games": len(differences), "difference": mean(differences), "low": means[int(0.025 * draws)],
            "high": means[int(0.975 * draws) - 1], "better": better, "worse": worse, "mcnemar_p": sign_test(better, worse)}


def sign_test(better: int, worse: int) -> float:
    """McNemar's exact p: how likely a split of the discordant games is at least as uneven, if both are equally good.

    >>> sign_test(5, 0), sign_test(3, 3), sign_test(0, 0)
    (0.0625, 1.0, 1.0)
    """
    n, k = better + worse, min(better, worse)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n)
