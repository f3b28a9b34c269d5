"""ALFWorld: household tasks played as text, on TextWorld's own engine.

In the paper: the main benchmark (Table 1, Figures 3-6). Commands, texts and goals come from the game files and the
engine; nothing here knows a verb. One observation is the engine's feedback, unchanged.

How it differs from the paper's harness (and from alfworld's AlfredTWEnv):
1. AlfredTWEnv walks the data folder in the order of the file system, and its workers draw games at random. Here a split
   is a sorted list of ids, and an evaluation plays each game of the list once.
2. One process with a fixed pool of engines in lock step, instead of one worker process per episode: with
   `fast_textworld` a step costs about a millisecond, less than passing it to a worker. Engines are kept and loaded with
   new games because the planner library inside each is never unloaded.
3. `help` is not offered and, as any action that is not offered, answered with "Nothing happens.". (The engine would
   print its help text; the harness hides the command but lets it through.)

Two kinds of game files exist: the published ones say `put X in/on Y`, alfworld 0.4's own grammar `move X to Y`. Both
play, each with the grammar that it carries.
"""
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from seed.envs.base import CACHE, GameError, Turn, Words, new_folder, read_action, slots_for
from seed.errors import UserError
from seed.trajectory import Task

STATED_DATA = os.environ.get("ALFWORLD_DATA")  # read before alfworld is imported, which sets it and makes the folder
LEVEL = "json_2.1.1"                           # the folder that alfworld-download makes
SPLITS = ("train", "valid_seen", "valid_unseen")
TASK_TYPES = ("pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep",
              "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place")
REWARD_WON = 10.0
GAMES_VERSION = 1                               # raise it when the generator changes: it makes other games then
GAMES_SEED = 0                                  # made games are the same for every run's seed, as a data set is
TASK_PREFIX = "Your task is to: "
WORDS = Words(
    head="You are an agent who acts in a simulated household to carry out a task.\nYour task is to: ",
    offer="\nYour admissible actions are: [",
    instruction=("]\nFirst reason step by step about the situation, inside <think> </think> tags. Then choose one admissible "
                 "action and give it inside <action> </action> tags."),
    analysis="An agent has finished an episode.",
    read=read_action)


def downloaded_data() -> Path | None:
    """The folder of the published data: $ALFWORLD_DATA, or where `alfworld-download` puts it; None if there is none."""
    if STATED_DATA:
        if not (Path(STATED_DATA) / LEVEL / "train").is_dir():
            raise UserError(f"ALFWORLD_DATA is {STATED_DATA}, which has no folder {LEVEL}/train: run `alfworld-download` "
                            f"with it set, or unset it to play games made here")
        return Path(STATED_DATA).resolve()
    default = Path.home() / ".cache" / "alfworld"
    return default if (default / LEVEL / "train").is_dir() else None


def open_env(config) -> "AlfWorld":
    """The games that the configuration asks for, made first where there are none; says in one line which they are."""
    from seed.envs.alfworld_games import Difficulty, make_games
    slots = slots_for(config)
    if config.data not in ("auto", "made"):
        if not (Path(config.data) / LEVEL / "train").is_dir():
            raise UserError(f"--data {config.data} has no folder {LEVEL}/train: expected auto, made, or a folder like the one "
                            f"that `alfworld-download` fills")
        root = Path(config.data).resolve()
    else:
        root = downloaded_data() if config.data == "auto" else None
    if root:
        print(f"games: {root}", file=sys.stderr)
        return AlfWorld(root, slots, CACHE / "groundings")
    numbers = dict(zip(SPLITS, (config.train_games, config.seen_games, config.unseen_games)))
    root = CACHE / f"alfworld-v{GAMES_VERSION}-{config.households}-{'-'.join(map(str, numbers.values()))}"
    if not root.is_dir():
        difficulty = Difficulty.parse(config.households)
        print(f"games: making {sum(numbers.values())} small ones in {root} (no downloaded ALFWorld data is used)", file=sys.stderr)
        with new_folder(root) as unfinished:
            make_games(unfinished, numbers, difficulty, GAMES_SEED, CACHE / "groundings")
    else:
        print(f"games: the small ones made earlier, in {root}", file=sys.stderr)
    return AlfWorld(root, slots, CACHE / "groundings")


def make_engine(plan: bool = False):
    """One engine: the layers that AlfredTWEnv stacks, without gym and worker processes. `plan`: with a planner."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs import PddlEnv
    infos = textworld.EnvInfos(won=True, admissible_commands=True, policy_commands=plan, extras=["gamefile"])
    return AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))


class AlfWorld:
    name = "alfworld"

    def __init__(self, root: Path, slots: int, cache: Path | None):
        """root: the folder that holds json_2.1.1. slots: how many games run at once. cache: where groundings are kept."""
        from seed.envs import fast_textworld
        fast_textworld.apply(cache)
        self.root = Path(root)
        self.slots = slots
        self.engines = [None] * slots
        self.open = [None] * slots     # the id of the game that each engine has loaded
        self.turns = [None] * slots    # the last turn shown in each slot

    def splits(self) -> list[str]:
        return [split for split in SPLITS if (self.root / LEVEL / split).is_dir()]

    def tasks(self, split: str) -> list[Task]:
        folder = self.root / LEVEL / split
        if not folder.is_dir():
            raise UserError(f"no split {split} in {self.root / LEVEL}, which has: {', '.join(self.splits())}")
        tasks = []
        for path in folder.glob("*/*/game.tw-pddl"):
            folder_name = path.parent.parent.name
            kind = folder_name.split("-")[0]
            # As AlfredTWEnv: the six task types, without movable receptacles ("a mug of pens") and sliced objects.
            if kind in TASK_TYPES and "movable" not in folder_name and "Sliced" not in folder_name:
                tasks.append(Task(self.name, path.parent.relative_to(self.root).as_posix(), kind))
        if not tasks:
            raise UserError(f"no games in {folder}: expected folders like pick_and_place_simple-Mug-None-Desk-308/trial_x/ "
                            f"with a game.tw-pddl inside")
        return sorted(tasks, key=lambda task: task.id)

    def reset(self, slot: int, task: Task) -> Turn:
        path = self.root / task.id / "game.tw-pddl"
        try:
            if self.engines[slot] is None:
                self.engines[slot] = make_engine()
            if self.open[slot] != task.id:
                self.open[slot] = None
                if json.loads(path.read_bytes()).get("solvable") is not True:
                    raise GameError("the file does not mark the game as solvable")
                self.engines[slot].load(str(path))
            turn = self._turn(self.engines[slot].reset())
            self.open[slot] = task.id
        except Exception as error:  # whatever a damaged file makes of the parser, the translator or the planner
            raise self._crashed(slot, task.id, error) from error
        if TASK_PREFIX not in turn.observation:
            raise GameError(f"{task.id}: the first observation does not say '{TASK_PREFIX}'")
        self.turns[slot] = replace(turn, description=turn.observation.split(TASK_PREFIX)[1].strip())
        return self.turns[slot]

    def step(self, slot: int, action: str) -> Turn:
        last = self.turns[slot]
        if action not in last.admissible:
            self.turns[slot] = Turn("Nothing happens.", last.admissible)
            return self.turns[slot]
        try:
            state, _, done = self.engines[slot].step(action)
            self.turns[slot] = self._turn(state, done)
        except Exception as error:
            raise self._crashed(slot, self.open[slot], error) from error
        return self.turns[slot]

    def _turn(self, state, done=False) -> Turn:
        won = bool(state["won"])
        offered = tuple(command for command in state["admissible_commands"] if command != "help")
        return Turn(state["feedback"], offered, REWARD_WON * won, bool(done), won)

    def _crashed(self, slot, game, error) -> GameError:
        self.engines[slot] = self.open[slot] = None  # what it left behind cannot be trusted
        return GameError(f"{game}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}")


class Planner:
    """Plans with one engine of its own: `policy_commands` plans again at every step, so it must never play."""

    def __init__(self, cache: Path | None):
        from seed.envs import fast_textworld
        fast_textworld.apply(cache)
        self.engine = make_engine(plan=True)

    def plan(self, game: Path) -> list[str]:
        """The commands that solve a game, in order; empty if there is no solution."""
        self.engine.load(str(game))
        return list(self.engine.reset()["policy_commands"])
