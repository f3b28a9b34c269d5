"""Evaluate a policy on a fixed list of games, or compare two runs game by game.

    python eval.py --run runs/alfworld-tiny-seed-seed0
    python eval.py --run runs/A --compare runs/B --split valid_unseen --repeats 3 --json comparison.json
    python eval.py --model base --env alfworld --preset tiny

In the paper: the success rates of Table 1 and Figure 5 (unseen). The plain policy acts: no skill, no analyzer; --with-skills
puts the static library's skill for the task into every context (Table 1's rows with a star). The list of games is sorted and
named by a hash; each game is played --repeats times; intervals are Wilson's at 95 %. The last checkpoint is evaluated unless
--checkpoint says otherwise; `best` was chosen by looking at many evaluations, so its score is biased upwards, and the result
says so. --compare plays both runs on the same games and reports the paired difference
(positive: the second run is better) with a bootstrap interval and McNemar's exact p.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import json
import sys
from pathlib import Path

from seed.commandline import Parser
from seed.config import ENVIRONMENTS, Config, check_python, load_config, make_config
from seed.envs import open_env
from seed.errors import UserError, exit_cleanly
from seed.evaluation import compare, evaluate, spread
from seed.library import Library
from seed.policy import load_policy
from seed.runlog import RunLog, commit, versions


@exit_cleanly
def main():
    check_python()
    args = arguments()
    results, runs = [], [args.run, args.compare] if args.compare else [args.run]
    for run, (config, folder, chosen) in zip(runs, [what_to_play(args, run) for run in runs]):
        env = open_env(config)
        policy = load_policy(config, folder)
        if args.temperature is not None:
            config.eval_temperature = args.temperature
        tasks = spread(env.tasks(args.split), args.episodes)
        result = evaluate(policy, env, tasks, config, repeats=args.repeats, seed=args.seed, title=f"{run or args.model}",
                          library=Library(config.env) if args.with_skills else None)
        trained = {"method": config.method, "train_seed": config.seed} if run else {"method": "vanilla"}
        results.append({"run": run or args.model, "split": args.split, **chosen, **trained, "env": config.env, "preset": config.preset,
                        "max_turns": config.max_turns, "commit": commit(), "versions": versions(), **result})
        show(results[-1])
    output = {"evaluations": results}
    if args.compare:
        a, b = results
        if set(a["outcomes"]) != set(b["outcomes"]):
            raise UserError("the two runs were not evaluated on the same games (other data, or a game crashed): set --data so that "
                            "they agree, and see the crashed games above")
        for name in ("temperature", "max_turns"):
            if a[name] != b[name]:
                print(f"note: {name} is {a[name]} in the first run and {b[name]} in the second", file=sys.stderr)
        output["comparison"] = compare(*results)
        c = output["comparison"]
        print(f"\n{args.compare} minus {args.run}: {c['difference']:+.1%} [{c['low']:+.1%}, {c['high']:+.1%}] over {c['games']} "
              f"games (better on {c['better']}, worse on {c['worse']}, McNemar p = {c['mcnemar_p']:.3g})")
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).write_text(json.dumps(output, indent=2))


def arguments():
    parser = Parser(__doc__)
    parser.add_argument("--run", help="run folder")
    parser.add_argument("--model", choices=["base"], help="instead of a run: the preset's base model")
    parser.add_argument("--env", choices=list(ENVIRONMENTS), help="with --model [alfworld]")
    parser.add_argument("--preset", help="with --model [auto]")
    parser.add_argument("--data", help="auto, made, or a data folder [the run's]")
    parser.add_argument("--split", default="valid_seen", choices=["train", "valid_seen", "valid_unseen"])
    parser.add_argument("--episodes", type=int, help="only so many games of the list, evenly spread over it [all]")
    parser.add_argument("--repeats", type=int, default=1, help="how often each game is played [1]")
    parser.add_argument("--with-skills", action="store_true", help="act with the static library's skills (seed/skills)")
    parser.add_argument("--temperature", type=float, help="sampling temperature [the run's: 0.4 as in the paper]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the evaluation's sampling [0, as during training]")
    parser.add_argument("--checkpoint", help="with --run: last, best, start, or the number of an update [last]")
    parser.add_argument("--compare", help="a second run folder")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    if bool(args.run) == bool(args.model):
        parser.error("give either --run FOLDER or --model base" + ", not both" * bool(args.run))
    if args.compare and not args.run:
        parser.error("--compare needs --run")
    if args.run and (args.env or args.preset) or args.model and args.checkpoint:
        parser.error("--env and --preset go with --model, --checkpoint goes with --run")
    if args.temperature is not None and not args.temperature > 0:
        parser.error(f"--temperature is {args.temperature}: expected more than 0")
    args.checkpoint = args.checkpoint or "last"
    if min(1 if args.episodes is None else args.episodes, args.repeats) < 1:
        parser.error("--episodes and --repeats: expected at least 1")
    return args


def what_to_play(args, run) -> tuple[Config, Path | None, dict]:
    """(configuration, folder of the weights, how the checkpoint was chosen)."""
    if run is None:
        given = {"env": args.env or "alfworld", "preset": args.preset or "auto", "data": args.data or "auto"}
        return make_config(given), None, {"checkpoint": "base"}
    log, config = RunLog(run), load_config(Path(run) / "config.json")
    config.data = args.data or config.data
    there = log.checkpoints() or [0] * (config.updates == 0)  # vanilla and skill-prompt have their start alone
    if not there:
        raise UserError(f"{run} has no checkpoint yet: go on with python train_seed.py --resume --out {run}")
    if args.checkpoint == "best":
        update, looked = log.best()
        rule = f"highest success on {config.eval_split} among {looked} evaluations during training"
    elif args.checkpoint in ("start", "last"):
        update, rule = (0, "the start") if args.checkpoint == "start" else (there[-1], "the last checkpoint")
    elif args.checkpoint.isdigit():
        update, rule = int(args.checkpoint), "the update given"
    else:
        raise UserError(f"--checkpoint {args.checkpoint}: expected last, best, start, or the number of an update")
    if update and update not in there:
        raise UserError(f"{run} has no checkpoint of update {update}: it has {', '.join(map(str, there))}")
    return config, log.policy_folder(update), {"checkpoint": args.checkpoint, "update": update, "rule": rule}


def show(result) -> None:
    chosen = f" ({result['rule']}, update {result['update']})" if "rule" in result else ""
    often = "once" if result["repeats"] == 1 else f"{result['repeats']} times"
    print(f"\n{result['run']}, checkpoint {result['checkpoint']}{chosen}, {result['split']}: {result['tasks']} games (list "
          f"{result['manifest']}), each {often}, temperature {result['temperature']}"
          + ", with the library's skills" * result["with_skills"])
    for kind, rate in [("all", result), *result["by_type"].items()]:
        print(f"  {kind:32s} {rate['wins']:4d} of {rate['games']:4d} = {rate['success']:6.1%}  [{rate['low']:.1%}, {rate['high']:.1%}]")
    if result["mean_score"] is not None:
        print(f"  mean score {result['mean_score']:.3f}")
    print(f"  mean turns {result['mean_turns']:.1f}, malformed replies {result['malformed']:.1%}, inadmissible actions "
          f"{result['inadmissible']:.1%}, crashed games {len(result['crashed'])}")
    for message in result["crashed"]:
        print(f"  crashed: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
