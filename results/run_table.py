"""Every method of the paper's table on the tiny preset: results/table.json, the tables and the figures.

    python results/run_table.py                         # all runs that are not there yet, then the summary
    python results/run_table.py --only grpo seed        # a piece: these names
    python results/run_table.py --group lambda-beta     # ... or one group of runs
    python results/run_table.py --summary               # only tables and figures, from the runs that are there

Each run trains with the preset's own settings but for the options named below, from the same Stage 1 (but where it says "from
base"), and its last policy plays the 200 held-out games of each split once. A run is kept as a file in results/runs and is not
repeated; on two cores two runs at a time take about a quarter of an hour. Success with Wilson's 95 % interval for a run, mean with
Student's t over the seeds, and differences to grpo paired by seed and game.
"""
import argparse
import json
import time

import experiment
from experiment import ROOT, SEEN, SPLITS, UNSEEN, Run, do_all, end, over_seeds, remembered

from seed.evaluation import compare
from seed.methods import METHODS
from seed.runlog import commit, versions

FIVE, THREE, ONE = range(5), range(3), range(1)
FRACTIONS = (0.2, 0.4, 0.6, 0.8)
# name: (seeds, options). The order is the table's.
GROUPS = {
    "table": {
        "vanilla": (ONE, ("--method", "vanilla")),
        "skill-prompt": (ONE, ("--method", "skill-prompt")),
        "grpo": (FIVE, ("--method", "grpo")),
        "seed": (FIVE, ("--method", "seed")),
        "sdar": (THREE, ("--method", "sdar")),
        "skill-grpo": (THREE, ("--method", "skill-grpo")),
        "grpo+opsd": (THREE, ("--method", "grpo+opsd")),
        "opsd": (THREE, ("--method", "opsd")),
        "skill-sd": (THREE, ("--method", "skill-sd")),
        "rlsd": (THREE, ("--method", "rlsd")),
        "grpo from base": (THREE, ("--method", "grpo", "--init", "base")),
        "seed from base": (THREE, ("--method", "seed", "--init", "base")),
    },
    "better-skills": {f"seed-{kind}": (THREE, ("--method", f"seed-{kind}")) for kind in ("expert", "workflow", "other")},
    "lambda-beta": {f"seed {knob} {value}": (THREE, ("--method", "seed", f"--{option}", value))
                    for knob, option, values in (("lambda", "opd-coef", (0.01, 1)), ("beta", "gate-beta", (1, 20))) for value in values},
    "fractions": {f"{method} {fraction:.0%} of the data": (THREE, ("--method", method, "--train-fraction", fraction))
                  for fraction in FRACTIONS for method in ("grpo", "seed")},
}
RUNS = {name: [Run(name, seed, options) for seed in seeds] for group in GROUPS.values() for name, (seeds, options) in group.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(RUNS), metavar="NAME", help=f"these runs: {', '.join(RUNS)}")
    parser.add_argument("--group", choices=list(GROUPS), help="the runs of one group")
    parser.add_argument("--seeds", nargs="+", type=int, help="only these seeds")
    parser.add_argument("--summary", action="store_true", help="no runs, only tables and figures")
    args = parser.parse_args()
    names = args.only or (GROUPS[args.group] if args.group else RUNS)
    if not args.summary:
        # Seed by seed, so that an interrupted list has something of everything.
        do_all(sorted((run for name in names for run in RUNS[name] if args.seeds is None or run.seed in args.seeds), key=lambda run: run.seed))
    summarise()


def summarise():
    records = {name: [r for r in map(remembered, runs) if r] for name, runs in RUNS.items()}
    records = {name: there for name, there in records.items() if there}
    rows = {}
    for name, there in records.items():
        for skills in sorted({e["with_skills"] for e in there[0]["evaluations"]}):
            if name == "skill-prompt" and not skills:  # that is vanilla
                continue
            rows[name + "*" * skills] = {**{split: row(there, records.get("grpo", []), split, skills) for split in SPLITS},
                                         "training": training(there, records.get("grpo", []))}
    summary = {"command": "python results/run_table.py", "date": time.strftime("%Y-%m-%d"), "machine": experiment.machine(), "commit": commit(),
               "versions": versions(), "metric": "success on 200 held-out games a split, each once, temperature 0.4, last policy", "rows": rows}
    (ROOT / "results" / "table.json").write_text(json.dumps(summary, indent=1) + "\n")
    table = markdown(rows)
    (ROOT / "results" / "table.md").write_text(table)
    print(table)
    from figures import draw_all
    draw_all(records)


def row(there: list[dict], grpo: list[dict], split: str, skills: bool) -> dict:
    """One line of the table: each run with its interval, the mean, and the difference to GRPO, paired by seed and game."""
    runs = [{"seed": r["seed"], "config_hash": r["config_hash"], "commit": r["commit"],
             **{key: end(r, split, skills)[key] for key in ("update", "wins", "games", "success", "low", "high", "mean_turns", "by_type")}}
            for r in there]
    start = end(there[0], split, skills, "start")
    pairs = [{"seed": r["seed"], **compare(end(g, split), end(r, split, skills))} for r in there for g in grpo if g["seed"] == r["seed"]]
    return {"method": there[0]["method"], "runs": runs, "start": {key: start[key] for key in ("wins", "games", "success", "low", "high")},
            "success": over_seeds([r["success"] for r in runs]), "turns": over_seeds([r["mean_turns"] for r in runs]),
            "minus_grpo": over_seeds([p["difference"] for p in pairs]) if pairs and there[0]["name"] != "grpo" else None, "paired": pairs}


def training(there: list[dict], grpo: list[dict]) -> dict | None:
    """Success of all training episodes of a run, at the rollouts' temperature of 1: the height of Figure 3's curve. By seed, as above."""
    mean = lambda r: sum(r["metrics"]["success"]) / len(r["metrics"]["success"])
    if "success" not in there[0]["metrics"]:
        return None
    pairs = [mean(r) - mean(g) for r in there for g in grpo if g["seed"] == r["seed"]]
    return {"success": over_seeds([mean(r) for r in there]), "minus_grpo": over_seeds(pairs) if pairs and there[0]["name"] != "grpo" else None}


def markdown(rows: dict) -> str:
    """The table for results/README.md."""
    percent = lambda x: f"{100 * x:.1f}"
    spread = lambda s: percent(s["mean"]) + (f" [{percent(s['low'])}, {percent(s['high'])}]" if s["low"] is not None else "")
    lines = ["| run | seeds | seen: each run | seen: mean | seen: minus grpo | unseen: each run | unseen: mean | unseen: minus grpo | "
             "training episodes: mean | training: minus grpo |", "|---|---|---|---|---|---|---|---|---|---|"]
    for name, splits in rows.items():
        cells = [name, str(len(splits[SEEN]["runs"]))]
        for split in (SEEN, UNSEEN):
            r = splits[split]
            trained = METHODS[r["method"]].trains
            cells += [" ".join(percent(run["success"]) for run in r["runs"]), spread(r["success"]),
                      spread(r["minus_grpo"]) if r["minus_grpo"] and trained else ""]
        t = splits["training"]
        cells += [spread(t["success"]), spread(t["minus_grpo"]) if t["minus_grpo"] else ""] if t else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
