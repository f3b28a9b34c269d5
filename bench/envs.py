"""How fast the environments are: steps and resets a second, and Sokoban beside its original.

    python bench/envs.py
    pip install --target gym-sokoban --no-deps gym-sokoban==0.0.6 gym==0.26.2 gym-notices imageio "setuptools<81" \\
        && PYTHONPATH=gym-sokoban python bench/envs.py --only sokoban

Every environment is played by its rule-based player (`seed/envs/NAME_expert.py`), a third of whose actions are random; only the
environment's own CPU time counts. Sokoban and EZPoints then play the same actions with pictures. Where the original program of
Sokoban (gym-sokoban) can be imported, it is put into the same rooms and given the same moves, and every board and reward is compared.
ALFWorld against its original is `bench/alfworld_engine.py`; the originals of the other three come in no package (WebShop's wants
Java, search's a server and its index; EZPoints is a part of RL4VLM's repository).

The last line is JSON: for each environment {"steps_per_second", "resets_per_second"}, and for Sokoban beside its original
{"step_speedup", "picture_speedup", "differences"}. Seconds depend on the machine, ratios less.
"""
import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seed.config import ENVIRONMENTS, VISUAL, make_config
from seed.envs import open_env
from seed.tiny import play

SLIPS = 1 / 3
PUSHES = {"up": 1, "down": 2, "left": 3, "right": 4}          # gym-sokoban's numbers
CELLS = dict(zip("#_OX√PS", (0, 1, 2, 4, 3, 5, 5)))           # and its room_state, by the text form's symbols


class Clocked:
    """An environment that counts what it takes, and remembers what it was asked and answered."""

    def __init__(self, env):
        self.env, self.name, self.seconds, self.asked = env, env.name, {"reset": 0.0, "step": 0.0}, []

    def reset(self, slot, task):
        return self._do("reset", task, lambda: self.env.reset(slot, task))

    def step(self, slot, action):
        return self._do("step", action, lambda: self.env.step(slot, action))

    def _do(self, what, given, call):
        clock = time.process_time()
        turn = call()
        self.seconds[what] += time.process_time() - clock
        self.asked.append((what, given, turn))
        return turn

    def rates(self) -> dict:
        number = {what: sum(done == what for done, _, _ in self.asked) for what in self.seconds}
        return {f"{what}s_per_second": round(number[what] / max(self.seconds[what], 1e-9), 1) for what in self.seconds}


def replay(asked, env) -> Clocked:
    again = Clocked(env)
    for what, given, _ in asked:
        again.reset(0, given) if what == "reset" else again.step(0, given)
    return again


def beside_the_original(asked, pictures: Clocked) -> dict | None:
    """The same rooms and moves in gym-sokoban; None where it cannot be imported."""
    try:
        import numpy as np
        from gym_sokoban.envs.sokoban_env import SokobanEnv
    except ImportError:
        return None
    original, differences, seconds = SokobanEnv(dim_room=(6, 6), max_steps=15, num_boxes=1), 0, {"step": 0.0, "picture": 0.0}
    original.reset()
    read = lambda board: np.array([[CELLS[symbol] for symbol in row.replace("\t", "").split()] for row in board.split("\n")])
    for what, given, turn in asked:
        if what == "reset":
            symbols = turn.observation.replace("\t", "").split()
            original.room_state = read(turn.observation)
            original.room_fixed = np.array([{"#": 0, "O": 2, "√": 2, "S": 2}.get(s, 1) for s in symbols]).reshape(original.room_state.shape)
            original.player_position = np.argwhere(original.room_state == 5)[0]
            original.num_env_steps = original.boxes_on_target = original.reward_last = 0
        elif given in PUSHES:
            clock = time.process_time()
            _, reward, done, _ = original.step(PUSHES[given], observation_mode="tiny_rgb_array")
            seconds["step"] += time.process_time() - clock
            differences += (not np.array_equal(original.room_state, read(turn.observation)) or abs(reward - turn.reward) > 1e-9
                            or done != turn.done)
        clock = time.process_time()
        original.render(mode="rgb_array")
        seconds["picture"] += time.process_time() - clock
    moves = sum(what == "step" and given in PUSHES for what, given, _ in asked)
    return {"original_steps_per_second": round(moves / seconds["step"], 1), "differences": differences,
            "picture_speedup": round(seconds["picture"] / sum(pictures.seconds.values()), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(ENVIRONMENTS), default=list(ENVIRONMENTS))
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()
    results = {}
    for name in args.only:
        config = make_config({"env": name, "preset": "tiny", "data": "made"})
        env = Clocked(open_env(config))
        tasks = env.env.tasks("train")
        for episode in range(args.episodes):
            rng = random.Random(f"bench {name} {episode}")
            play(env, tasks[episode % len(tasks)], rng, SLIPS, config.max_turns, config.history_length, careless=True)
        results[name] = env.rates()
        if name in VISUAL:
            config.vision = True
            pictures = replay(env.asked, open_env(config))
            results[name]["with_pictures"] = pictures.rates()
        if name == "sokoban" and (beside := beside_the_original(env.asked, pictures)):
            beside["step_speedup"] = round(results[name]["steps_per_second"] / beside["original_steps_per_second"], 1)
            results[name]["original"] = beside
        print(f"{name}: {results[name]}", file=sys.stderr)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
