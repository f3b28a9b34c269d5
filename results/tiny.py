"""GRPO and SEED on the tiny preset, three seeds each, on fixed held-out games: results/ENV_tiny.json and .png.

    python results/tiny.py --env alfworld
    python results/tiny.py --env ezpoints

The preset's own settings, the first and the last state on all held-out games of both splits. What is finished is not repeated, and
what was interrupted goes on (experiment.py; ALFWorld's runs are those of run_table.py). As many runs at a time as there are cores,
each with one thread: ALFWorld's six take about an hour on two cores.
"""
import argparse
import json

from experiment import ROOT, SPLITS, Run, do_all, end, over_seeds, remembered

from seed.config import ENVIRONMENTS
from seed.evaluation import compare

METHODS, SEEDS = ("grpo", "seed"), (0, 1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", choices=list(ENVIRONMENTS), default="alfworld")
    env = parser.parse_args().env
    prefix = "" if env == "alfworld" else f"{env} "   # the table's runs are called by their method alone
    runs = {(method, seed): Run(prefix + method, seed, ("--method", method), env) for seed in SEEDS for method in METHODS}
    do_all(list(runs.values()))
    records = {key: remembered(run) for key, run in runs.items()}
    summary = {"command": f"python results/tiny.py --env {env}", "runs": list(records.values()), "comparison": {}}
    for split in SPLITS:
        ends = {key: end(record, split) for key, record in records.items()}
        pairs = [compare(ends["grpo", seed], ends["seed", seed]) for seed in SEEDS]
        summary["comparison"][split] = {
            **{method: over_seeds([ends[method, seed]["success"] for seed in SEEDS]) for method in METHODS},
            "seed_minus_grpo": over_seeds([pair["difference"] for pair in pairs]), "paired_by_seed": pairs}
    (ROOT / "results" / f"{env}_tiny.json").write_text(json.dumps(summary, indent=1) + "\n")
    draw(summary["runs"], ROOT / "results" / f"{env}_tiny.png")
    show(summary)


def draw(runs, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    figure, axes = plt.subplots(1, 4, figsize=(17, 4), constrained_layout=True)
    colours = {"grpo": "tab:gray", "seed": "tab:blue"}
    smooth = lambda v: [sum(v[max(0, i - 2):i + 3]) / len(v[max(0, i - 2):i + 3]) for i in range(len(v))]
    for run in runs:
        m, colour, label = run["metrics"], colours[run["method"]], run["method"] if run["seed"] == 0 else None
        updates = range(1, len(m["success"]) + 1)
        axes[0].plot(updates, smooth(m["success"]), color=colour, alpha=0.6, label=label)
        axes[2].plot(updates, smooth(m["turns"]), color=colour, alpha=0.6, label=label)
        during = run["during"]
        axes[1].errorbar([e["update"] + 0.15 * run["seed"] for e in during], [e["success"] for e in during], fmt="o-", color=colour, alpha=0.6,
                         capsize=3, label=label, yerr=[[e["success"] - e["low"] for e in during], [e["high"] - e["success"] for e in during]])
        if "opd_loss" in m:
            axes[3].plot(updates, m["opd_loss"], color=colour, alpha=0.6, label="OPD loss" if run["seed"] == 0 else None)
            axes[3].plot(updates, [g - 0.5 for g in m["gate_mean"]], color="tab:orange", alpha=0.6, label="gate mean - 0.5" if run["seed"] == 0 else None)
    for axis, title in zip(axes, ("success in training (5-update mean)", "valid_seen, 95 % intervals", "turns an episode", "SEED's distillation")):
        axis.set(title=title, xlabel="update")
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=90)


def show(summary):
    print(f"\n{'run':14s}{'split':14s}{'start':>26s}{'end':>26s}")
    for run in summary["runs"]:
        for split in SPLITS:
            start, last = (end(run, split, state=state) for state in ("start", "last"))
            cell = lambda e: f"{e['success']:.1%} [{e['low']:.1%}, {e['high']:.1%}]"
            print(f"{run['method'] + ' ' + str(run['seed']):14s}{split:14s}{cell(start):>26s}{cell(last):>26s}  "
                  f"{'apart' if last['low'] > start['high'] else 'NOT apart'}")
    for split, c in summary["comparison"].items():
        d = c["seed_minus_grpo"]
        print(f"{split}: SEED minus GRPO {d['mean']:+.1%} [{d['low']:+.1%}, {d['high']:+.1%}] over {len(SEEDS)} seeds")


if __name__ == "__main__":
    main()
