"""TextWorld's engine as it comes against seed/envs/fast_textworld.py: speed, and every character of output.

    python bench/alfworld_engine.py --games ../shared/alfworld --number 6 --steps 12
    python bench/alfworld_engine.py                        # on games made here; real ones gain more

Each engine runs in a process of its own, on the same games, with the same commands, interleaved game by game so that both
meet the same machine. Compared are feedback, admissible commands, won, done and score of every state. Times are CPU seconds.
Nothing is cached on disk: the patched engine's first load is a real one. "load" is load() and the first reset(), "reset" a
further reset() of the same game, "step" one command.

The last line is JSON: {"step_speedup", "load_speedup", "reset_speedup", "differences"}, ratios of the sums over all games.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def worker(fast: bool) -> None:
    """Answer one request a line: {"game", "steps", "seed"} -> times and states."""
    from seed.envs.alfworld import make_engine
    if fast:
        from seed.envs import fast_textworld
        fast_textworld.apply(None)
    engine = make_engine()
    for line in sys.stdin:
        request = json.loads(line)
        rng, states, times = random.Random(request["seed"]), [], {}
        clock = time.process_time()
        engine.load(request["game"])
        state = engine.reset()
        times["load"] = time.process_time() - clock
        states.append(seen(state))
        clock = time.process_time()
        state = engine.reset()
        times["reset"] = time.process_time() - clock
        states.append(seen(state))
        commands = []
        for _ in range(request["steps"]):
            commands.append(rng.choice(state["admissible_commands"]) if rng.random() < 0.9 else "fly to the moon")
            clock = time.process_time()
            state, score, done = engine.step(commands[-1])
            times["step"] = times.get("step", 0) + time.process_time() - clock
            states.append([*seen(state), score, bool(done)])
        print(json.dumps({"times": times, "states": states}), flush=True)


def seen(state) -> list:
    return [state["feedback"], state["admissible_commands"], bool(state["won"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=Path, help="a data folder; without it, games are made")
    parser.add_argument("--number", type=int, default=6, help="games, spread over the sorted list")
    parser.add_argument("--steps", type=int, default=12, help="random commands a game, a tenth of them inadmissible")
    parser.add_argument("--worker", choices=["stock", "fast"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker == "fast")
    with tempfile.TemporaryDirectory() as made:
        if args.games is None:
            subprocess.run([sys.executable, "-m", "seed.envs.alfworld_games", "--out", made, "--train", str(args.number),
                            "--valid-seen", "1", "--valid-unseen", "1"], check=True, cwd=Path(__file__).parents[1])
        games = sorted(Path(args.games or made).resolve().glob("json_2.1.1/*/*/*/game.tw-pddl"))
        if not games:
            sys.exit(f"error: no games below {args.games}: expected json_2.1.1/<split>/<task>/<trial>/game.tw-pddl")
        compare(games[::max(1, len(games) // args.number)][:args.number], args.steps)


def compare(games, steps) -> None:
    engines = {name: subprocess.Popen([sys.executable, __file__, "--worker", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True) for name in ("stock", "fast")}
    totals = {name: {"load": 0.0, "reset": 0.0, "step": 0.0} for name in engines}
    differences = states = 0
    for number, game in enumerate(games):
        answers = {}
        for name, engine in engines.items():
            engine.stdin.write(json.dumps({"game": str(game), "steps": steps, "seed": number}) + "\n")
            engine.stdin.flush()
            answers[name] = json.loads(engine.stdout.readline())
            for kind, seconds in answers[name]["times"].items():
                totals[name][kind] += seconds
        pairs = list(zip(answers["stock"]["states"], answers["fast"]["states"], strict=True))
        states += len(pairs)
        differences += sum(a != b for a, b in pairs)
        print(f"{number + 1}/{len(games)} {game.parent.parent.name}", file=sys.stderr)
    for engine in engines.values():
        engine.stdin.close()
        engine.wait()
    print(f"{len(games)} games, {states} states, {differences} differences; milliseconds of CPU time:")
    print(f"{'':18s}{'stock':>10s}{'fast':>10s}{'ratio':>8s}")
    ratios = {}
    for kind, count in (("step", len(games) * steps), ("load", len(games)), ("reset", len(games))):
        stock, fast = (1000 * totals[name][kind] / count for name in ("stock", "fast"))
        ratios[f"{kind}_speedup"] = round(stock / fast, 1)
        print(f"{kind:18s}{stock:10.1f}{fast:10.1f}{stock / fast:8.1f}")
    print(json.dumps({**ratios, "differences": differences}))


if __name__ == "__main__":
    main()
