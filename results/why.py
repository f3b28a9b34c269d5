"""Why distillation helps or does not: what the skills do to the policy, before any training with them. results/why.json and .png.

    python results/why.py                     # the policy after Stage 1
    python results/why.py --run runs/NAME     # the last policy of a run, as another entry of results/why.json

Four kinds of skill for the same finished episodes: the policy's own, those of rules that make no mistakes with the places where
things were seen ("expert") and without them ("workflow"), and the static library's. Three measurements on the made games:

1. Acting. Every game is played, the episode turned into a skill, and the same game played again with it in the context (library
   and workflow skills say nothing about the game itself; own and expert ones may). How much does a skill help as a prompt? And how
   much when it is the expert's skill of *another* game of the same type, whose places are then wrong (leak)?
2. Teaching. Delta = log pi(a | H(h, s)) - log pi(a | h) of the tokens of one update's episodes at temperature 1, apart for
   reasoning, tags and action, for won and lost episodes, and for groups in which all failed (no advantage, so GRPO learns nothing
   there); and how much of the reward is in Delta: the share of pairs of a won and a lost episode of the same group in which
   the won one has the higher mean Delta (0.5: none).
3. Sharpening. The held-out games without a skill at four sampling temperatures. A policy that has only become surer of what it did
   anyway gains at the 1.0 of training and not at the 0.4 of evaluations.
"""
import argparse
import json
import os
import random
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch

import experiment
from experiment import ROOT, Run

from seed.analyzer import analyze
from seed.augment import H
from seed.config import load_config, parse
from seed.envs import open_env
from seed.evaluation import evaluate, play_options, wilson
from seed.envs.alfworld_expert import hindsight
from seed.library import Library
from seed.policy import load_policy
from seed.rescore import score
from seed.rollout import rollout
from seed.runlog import RunLog, commit
from train_sft import stage1

KINDS = ("own", "expert", "workflow", "library")
OTHER = "expert, other game"
TEMPERATURES = (0.1, 0.4, 0.7, 1.0)
TASKS, COPIES = 32, 8    # of the second measurement
KEPT = ("wins", "games", "success", "low", "high", "mean_turns", "inadmissible")


class BySkill:
    """As a library: the skill that was made from an episode of the game."""

    def __init__(self, skills: dict):
        self.skills = skills

    def skill(self, task):
        return self.skills.get(task.id)


def skills_of(kind: str, policy, trajectories, config, name: str) -> list:
    """One skill, or None, for each finished episode."""
    if kind == "library":
        return [Library("alfworld").skill(t.task) for t in trajectories]
    if kind in ("expert", "workflow"):
        return [(hindsight(t, name_places=kind == "expert") or (None, None))[1] for t in trajectories]
    analyze(policy, trajectories, name, temperature=config.analyzer_temperature, most_prompt_tokens=config.analyzer_prompt_tokens,
            most_skill_tokens=config.skill_tokens, batch_tokens=config.sample_tokens)
    return [t.skill for t in trajectories]


def acting(policy, env, config) -> dict:
    """Success on the held-out games without a skill and, played again, with each kind."""
    tasks = env.tasks("valid_seen")
    first, _ = rollout(policy, env, [(task, i, 0) for i, task in enumerate(tasks)], "why, first", **play_options(config, config.eval_temperature))
    plain = evaluate(policy, env, tasks, config, title="without a skill")
    result = {"none": {key: plain[key] for key in KEPT}}
    for kind in (*KINDS, OTHER):
        made = skills_of("expert" if kind == OTHER else kind, policy, first, config, "why, first")
        if kind == OTHER:  # the list is sorted by type: the game before is of the same type, or (once a type) of the last one
            made = made[-1:] + made[:-1]
        skills = {t.task.id: s for t, s in zip(first, made)}
        e = evaluate(policy, env, tasks, config, library=BySkill(skills), title=f"with skills: {kind}")
        known = defaultdict(list)   # did the first episode succeed, from which the skill was made?
        for t in first:
            known["after a win" if t.success else "after a loss"] += e["outcomes"][t.task.id]
        result[kind] = {**{key: e[key] for key in KEPT},
                        "usable": sum(s is not None for s in skills.values()) / len(skills),
                        **{name: {"wins": sum(x), "games": len(x), "success": sum(x) / len(x), "interval": wilson(sum(x), len(x))} for name, x in known.items()}}
    return result


def sharpening(policy, env, config) -> dict:
    """Success on the held-out games, without a skill, by sampling temperature."""
    played = {t: evaluate(policy, env, env.tasks("valid_seen"), replace(config, eval_temperature=t), title=f"at temperature {t}") for t in TEMPERATURES}
    return {str(t): {key: e[key] for key in KEPT} for t, e in played.items()}


def teaching(policy, env, config) -> dict:
    """Delta by kind of skill, kind of token and kind of episode."""
    tasks = random.Random(0).sample(env.tasks("train"), TASKS)
    episodes = [(task, group, copy) for group, task in enumerate(tasks) for copy in range(COPIES)]
    played, _ = rollout(policy, env, episodes, "why, update", **play_options(config, config.temperature))
    rows = [(t, step) for t in played for step in t.steps]
    student = score(policy, [(step.prompt_ids, step.action_ids) for _, step in rows], config.batch_tokens)
    wins = defaultdict(list)
    for t in played:
        wins[t.group].append(t.success)
    result = {"episodes": len(played), "won": sum(t.success for t in played), "groups": len(wins),
              "groups_all_failed": sum(not any(w) for w in wins.values()), "kinds": {}}
    for kind in KINDS:
        skill = dict(zip(map(id, played), skills_of(kind, policy, played, config, "why, update")))
        taught = [(t, step, s) for (t, step), s in zip(rows, student) if skill[id(t)] is not None]
        teacher = score(policy, [(policy.encode_context(H(step.context, skill[id(t)])), step.action_ids) for t, step, _ in taught], config.batch_tokens)
        parts, by_episode = defaultdict(list), defaultdict(list)
        for (t, step, s), with_skill in zip(taught, teacher):
            delta = with_skill - s
            where = part_of_tokens(policy, step.action_ids)
            outcome = "won" if t.success else "lost" if any(wins[t.group]) else "lost, as all of the group"
            for part in ("reasoning", "action", "tags"):
                chosen = delta[torch.tensor([w == part for w in where])]
                parts[f"{part}, {outcome}"].append(chosen)
                parts[part].append(chosen)
            parts[outcome].append(delta)
            parts["all"].append(delta)
            by_episode[id(t)].append(delta)
        mean = {key: torch.cat(deltas).mean().item() for key, deltas in by_episode.items()}
        pairs = [mean[id(a)] > mean[id(b)] for a in played for b in played
                 if a.group == b.group and a.success and not b.success and id(a) in mean and id(b) in mean]
        result["kinds"][kind] = {"usable": len(by_episode) / len(played), "won_above_lost": sum(pairs) / len(pairs) if pairs else None, "pairs": len(pairs),
                                 "tokens": {name: numbers(torch.cat(deltas), config.gate_beta) for name, deltas in sorted(parts.items())}}
    return result


def part_of_tokens(policy, ids: list[int]) -> list[str]:
    """Which token of a reply belongs to the reasoning, the action, or the tags around them (and the end of turn)."""
    place, parts = None, []
    for token in ids:
        text = policy.decode([token]).strip()
        if text.startswith("<") or token in policy.end_ids:
            place = {"<think>": "reasoning", "<action>": "action"}.get(text)
            parts.append("tags")
        else:
            parts.append(place or "tags")
    return parts


def numbers(delta, beta: float) -> dict:
    gate = torch.sigmoid(beta * delta)
    return {"tokens": len(delta), "mean": round(delta.mean().item(), 4), "abs": round(delta.abs().mean().item(), 4),
            "gate": round(gate.mean().item(), 4), "above_0.1": round((delta > 0.1).float().mean().item(), 4),
            "below_-0.1": round((delta < -0.1).float().mean().item(), 4)} if len(delta) else {"tokens": 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run folder of the tiny preset, its last policy [the policy after Stage 1]")
    args = parser.parse_args()
    config = load_config(args.run / "config.json") if args.run else parse("", arguments=Run("", 0).tiny())[0]
    env = open_env(config)
    log = RunLog(args.run) if args.run else None
    policy = load_policy(config, log.policy_folder(log.checkpoints()[-1]) if log else stage1(config, env))
    file = ROOT / "results" / "why.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    name = f"{config.method} seed {config.seed}, update {log.checkpoints()[-1]}" if log else "after Stage 1"
    known[name] = {"command": "python results/why.py" + (f" --run {args.run}" if args.run else ""), "commit": commit(), "date": time.strftime("%Y-%m-%d"),
                   "machine": experiment.machine(), "acting": acting(policy, env, config), "teaching": teaching(policy, env, config),
                   "sharpening": sharpening(policy, env, config)}
    file.write_text(json.dumps(known, indent=1) + "\n")
    show(name, known[name])
    draw(known)


def show(name, entry):
    print(f"\n{name}: {entry['acting']['none']['success']:.1%} without a skill")
    print("  at temperature " + ", ".join(f"{t}: {e['success']:.1%}" for t, e in entry["sharpening"].items()))
    for kind in KINDS:
        a, t = entry["acting"][kind], entry["teaching"]["kinds"][kind]
        cells = "  ".join(f"{part} {t['tokens'].get(part, {}).get('mean', float('nan')):+.3f}" for part in ("reasoning", "action", "won", "lost", "lost, as all of the group"))
        print(f"  {kind:9s} acting {a['success']:.1%} [{a['low']:.1%}, {a['high']:.1%}], {a['inadmissible']:.0%} inadmissible   Delta {cells}   won above lost {t['won_above_lost']}")


def draw(known):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    figure, axes = plt.subplots(len(known), 2, figsize=(13, 3.6 * len(known)), constrained_layout=True, squeeze=False)
    outcomes = ("won", "lost", "lost, as all of the group")
    for (left, right), (name, entry) in zip(axes, known.items()):
        kinds = ("none", *KINDS, OTHER)
        rates = [entry["acting"][kind] for kind in kinds]
        left.bar(kinds, [100 * r["success"] for r in rates], color="tab:blue", capsize=3,
                 yerr=[[100 * (r["success"] - r["low"]) for r in rates], [100 * (r["high"] - r["success"]) for r in rates]])
        left.set(title=f"{name}: success when a skill is in the prompt, %")
        for k, outcome in enumerate(outcomes):
            right.bar([i + 0.27 * k for i in range(len(KINDS))], width=0.25, label=outcome,
                      height=[entry["teaching"]["kinds"][kind]["tokens"].get(f"action, {outcome}", {}).get("mean", 0) for kind in KINDS])
        right.set(title=f"{name}: mean Delta of action tokens, nats", xticks=range(len(KINDS)), xticklabels=KINDS)
        right.axhline(0, color="black", linewidth=0.5)
        right.legend(fontsize=8)
    figure.savefig(ROOT / "results" / "why.png", dpi=80)


if __name__ == "__main__":
    main()
