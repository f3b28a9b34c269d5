"""GRPO and SEED on the tiny preset, three seeds each, on fixed held-out games: results/alfworld_tiny.json and .png.

    python results/alfworld_tiny.py

Runs `train_seed.py` for each method and seed with the preset's own settings (runs that are finished are not repeated,
interrupted ones go on), plays the first and the last state on all held-out games of both splits, and writes the summary.
As many runs at a time as there are cores, each with one thread: on two cores about an hour and a quarter for all six.
"""
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from seed.evaluation import compare
from seed.runlog import RunLog

METHODS, SEEDS = ("grpo", "seed"), (0, 1, 2)
RUNS = ROOT / "runs" / "alfworld_tiny"
SPLITS = SEEN, UNSEEN = "valid_seen", "valid_unseen"  # the first is played during training anyway
TINY = ("--env", "alfworld", "--preset", "tiny", "--data", "made")
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t for a 95 % interval over that many seeds


def main():
    call("train_sft.py", *TINY)  # all runs start from one Stage 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(lambda run: one_run(*run), [(method, seed) for seed in SEEDS for method in METHODS]))
    summary = {"command": "python results/alfworld_tiny.py", "runs": [run for run, _ in runs], "comparison": {}}
    for split in SPLITS:
        ends = {(run["method"], run["seed"]): evaluations[split, "last"] for run, evaluations in runs}
        pairs = [compare(ends["grpo", seed], ends["seed", seed]) for seed in SEEDS]
        summary["comparison"][split] = {
            **{method: over_seeds([ends[method, seed]["success"] for seed in SEEDS]) for method in METHODS},
            "seed_minus_grpo": over_seeds([pair["difference"] for pair in pairs]), "paired_by_seed": pairs}
    (ROOT / "results" / "alfworld_tiny.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(runs)
    show(summary)


def call(script: str, *arguments):
    subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def one_run(method: str, seed: int):
    """Train (or go on, or do nothing), evaluate the first and the last state; returns the run's record and its evaluations."""
    folder = RUNS / f"{method}-seed{seed}"
    log = RunLog(folder)
    if not folder.exists():
        call("train_seed.py", *TINY, "--method", method, "--seed", seed, "--out", folder)
    facts = log.facts()
    if not log.checkpoints() or log.checkpoints()[-1] < facts["config"]["updates"]:
        call("train_seed.py", "--resume", "--out", folder)
    during, evaluations = log.read("evaluations.jsonl"), {}
    for state in ("start", "last"):
        evaluations[SEEN, state] = during[0 if state == "start" else -1]
        file = folder / f"{UNSEEN}-{state}.json"
        if not file.exists():
            call("eval.py", "--run", folder, "--checkpoint", state, "--split", UNSEEN, "--json", file)
        evaluations[UNSEEN, state] = json.loads(file.read_text())["evaluations"][0]
    keep = ("split", "update", "wins", "games", "success", "low", "high", "mean_turns", "malformed", "inadmissible",
            "manifest", "temperature", "by_type")
    metrics = log.read("metrics.jsonl")
    names = ("update", "success", "turns", "entropy", "kl", "equal_groups", "grad_norm", "opd_loss", "gate_mean", "gate_open", "delta_mean",
             "delta_abs", "delta_std", "skill_valid", "gradient_ratio", "gradient_cosine")
    return {"method": method, "env": "alfworld", "preset": "tiny", "seed": seed, "config_hash": facts["config_hash"],
            "commit": facts["commit"], "versions": facts["versions"], "minutes": round(sum(sum(m["seconds"].values()) for m in metrics) / 60, 1),
            "evaluations": [{"state": state, **{key: e[key] for key in keep}} for (_, state), e in evaluations.items()],
            "during": [{key: e[key] for key in ("update", "split", "wins", "games", "success", "low", "high")} for e in during],
            "metrics": {name: [round(m[name], 4) if m.get(name) is not None else None for m in metrics] for name in names
                        if any(name in m for m in metrics)}}, evaluations


def over_seeds(values):
    """Mean over the seeds with its 95 % t interval."""
    n = len(values)
    mean = sum(values) / n
    half = T_975[n] * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return {"mean": mean, "low": mean - half, "high": mean + half, "values": values}


def draw(runs):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    figure, axes = plt.subplots(1, 4, figsize=(17, 4), constrained_layout=True)
    colours = {"grpo": "tab:gray", "seed": "tab:blue"}
    smooth = lambda v: [sum(v[max(0, i - 2):i + 3]) / len(v[max(0, i - 2):i + 3]) for i in range(len(v))]
    for run, _ in runs:
        m, colour, label = run["metrics"], colours[run["method"]], run["method"] if run["seed"] == 0 else None
        axes[0].plot(m["update"], smooth(m["success"]), color=colour, alpha=0.6, label=label)
        axes[2].plot(m["update"], smooth(m["turns"]), color=colour, alpha=0.6, label=label)
        during = run["during"]
        axes[1].errorbar([e["update"] + 0.15 * run["seed"] for e in during], [e["success"] for e in during], fmt="o-", color=colour, alpha=0.6,
                         capsize=3, label=label, yerr=[[e["success"] - e["low"] for e in during], [e["high"] - e["success"] for e in during]])
        if "opd_loss" in m:
            axes[3].plot(m["update"], m["opd_loss"], color=colour, alpha=0.6, label="OPD loss" if run["seed"] == 0 else None)
            axes[3].plot(m["update"], [g - 0.5 for g in m["gate_mean"]], color="tab:orange", alpha=0.6, label="gate mean - 0.5" if run["seed"] == 0 else None)
    for axis, title in zip(axes, ("success in training (5-update mean)", "valid_seen, 95 % intervals", "turns an episode", "SEED's distillation")):
        axis.set(title=title, xlabel="update")
        axis.legend(fontsize=8)
    figure.savefig(ROOT / "results" / "alfworld_tiny.png", dpi=90)


def show(summary):
    print(f"\n{'run':14s}{'split':14s}{'start':>26s}{'end':>26s}")
    for run in summary["runs"]:
        for split in SPLITS:
            start, end = ([e for e in run["evaluations"] if (e["split"], e["state"]) == (split, state)][0] for state in ("start", "last"))
            cell = lambda e: f"{e['success']:.1%} [{e['low']:.1%}, {e['high']:.1%}]"
            print(f"{run['method'] + ' ' + str(run['seed']):14s}{split:14s}{cell(start):>26s}{cell(end):>26s}  "
                  f"{'apart' if end['low'] > start['high'] else 'NOT apart'}")
    for split, c in summary["comparison"].items():
        d = c["seed_minus_grpo"]
        print(f"{split}: SEED minus GRPO {d['mean']:+.1%} [{d['low']:+.1%}, {d['high']:+.1%}] over {len(SEEDS)} seeds")


if __name__ == "__main__":
    main()
