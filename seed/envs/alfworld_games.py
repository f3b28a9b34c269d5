"""Make small ALFWorld games: for a machine without the 2 GB of published data, and for a model that learns on a laptop.

    python -m seed.envs.alfworld_games --out data/my_games --train 24 --valid-seen 12 --valid-unseen 12

The game logic is the alfworld package's own (alfred.pddl, alfred.twl2), and so are the goals, the task sentences, what a
receptacle can hold, and what can be heated, cooled or cleaned. Made here are the households: a `Layout` is a room with its
receptacles, a game puts objects into them and names a goal. As in ALFWorld, `valid_seen` has new games in layouts of
training, `valid_unseen` has layouts that are never trained on. No two games of any splits are equal, and no task
(type, object, receptacle, layout) of a validation split occurs in training.

Every game is planned once and written only if the planner solves it. The folders are ALFWorld's own, so one loader reads
both: json_2.1.1/<split>/<type>-<object>-None-<receptacle>-<layout>/trial_<seed>/game.tw-pddl and traj_data.json. The plan
is kept in the game file as its walkthrough.

Everything follows from the seed: lists are sorted before they are drawn from, nothing depends on the hash seed.
"""
import argparse
import json
import random
import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tqdm import tqdm

from seed.envs.alfworld import LEVEL, SPLITS, TASK_TYPES, Planner
from seed.errors import UserError, exit_cleanly

# What stands and lies in a room. Which object can be in which receptacle is the package's table.
ROOMS = {
    "kitchen": ("CounterTop DiningTable Cabinet Drawer Shelf StoveBurner CoffeeMachine GarbageCan",
                "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Knife Ladle Lettuce Mug Pan PepperShaker Plate Pot Potato "
                "SaltShaker SoapBottle Spatula Spoon Tomato"),
    "livingroom": ("CoffeeTable SideTable DiningTable Sofa ArmChair Drawer Shelf Cabinet Safe GarbageCan",
                   "Book Box CreditCard KeyChain Laptop Newspaper Pillow RemoteControl Statue Vase Watch DeskLamp"),
    "bedroom": ("Desk SideTable Shelf Drawer Dresser Bed Safe GarbageCan",
                "AlarmClock Book Bowl CD CellPhone CreditCard KeyChain Laptop Mug Pen Pencil Pillow DeskLamp"),
    "bathroom": ("CounterTop Cabinet Drawer Shelf Toilet BathtubBasin ToiletPaperHanger GarbageCan",
                 "Candle Cloth SoapBar SoapBottle SprayBottle TissueBox ToiletPaper"),
}
ROOMS = {room: (stands.split(), lies.split()) for room, (stands, lies) in ROOMS.items()}
ALWAYS = {"kitchen": ["Fridge", "Microwave", "SinkBasin"], "bathroom": ["SinkBasin"]}  # what the tasks of a room need
SEVERAL = ("Cabinet", "CounterTop", "Drawer", "Shelf", "SideTable", "StoveBurner")   # a room has one of each other kind
FIRST_SCENE = {"kitchen": 1, "livingroom": 201, "bedroom": 301, "bathroom": 401}       # as AI2-THOR numbers its rooms
TOOL = {"pick_clean_then_place_in_recep": ("SinkBasin", "Cleanable"), "pick_heat_then_place_in_recep":
        ("Microwave", "Heatable"), "pick_cool_then_place_in_recep": ("Fridge", "Coolable")}
LAYOUTS_PER_ROOM = (10, 6)
ROOM_OF_TASK = {"look_at_obj_in_light": ("bedroom", "livingroom"), "pick_clean_then_place_in_recep": ("bathroom", "kitchen"),
                "pick_heat_then_place_in_recep": ("kitchen",), "pick_cool_then_place_in_recep": ("kitchen",)}


@dataclass(frozen=True)
class Difficulty:
    """How many receptacles and objects a household has, each drawn from a range."""
    receptacles: tuple[int, int] = (4, 6)
    objects: tuple[int, int] = (4, 7)

    @classmethod
    def parse(cls, text: str) -> "Difficulty":
        """`4-6x4-7`: 4 to 6 receptacles, 4 to 7 objects."""
        match = re.fullmatch(r"(\d+)-(\d+)x(\d+)-(\d+)", text)
        numbers = [int(n) for n in match.groups()] if match else []
        if not match or not (2 <= numbers[0] <= numbers[1] <= 12 and 3 <= numbers[2] <= numbers[3] <= 20):
            raise UserError(f"--households {text}: expected receptacles x objects, at most 12 and 20, like 4-6x4-7")
        return cls(tuple(numbers[:2]), tuple(numbers[2:]))


@dataclass(frozen=True)
class Layout:
    room: str
    receptacles: tuple[str, ...]   # types, sorted, repeated where there are several
    scene: int


def make_layouts(number: int, room: str, difficulty: Difficulty, rng: random.Random, taken: set) -> list[Layout]:
    """`number` layouts of a room, none of which is in `taken` (where they are added)."""
    layouts = []
    for _ in range(100 * number):
        kinds = list(ALWAYS.get(room, []))
        size = max(rng.randint(*difficulty.receptacles), len(kinds) + 1)
        while len(kinds) < size:
            kind = rng.choice(ROOMS[room][0])
            if kind in SEVERAL or kind not in kinds:
                kinds.append(kind)
        key = (room, tuple(sorted(kinds)))
        if key not in taken:
            taken.add(key)
            layouts.append(Layout(*key, FIRST_SCENE[room] + len(taken)))
        if len(layouts) == number:
            break
    if len(layouts) == number:
        return layouts
    raise ValueError(f"there are not {number} more layouts of a {room} with {difficulty.receptacles} receptacles")


@dataclass(frozen=True)
class Game:
    task: tuple                       # (type, object, receptacle, scene)
    placed: tuple                     # (object type, index of its receptacle), the target first
    layout: Layout

    def folder(self) -> str:
        kind, obj, recep, scene = self.task
        return f"{kind}-{obj}-None-{recep}-{scene}"


def make_game(kind: str, layout: Layout, difficulty: Difficulty, rng: random.Random) -> Game | None:
    """One game of a task type in a layout, or None where the draw has no solution there (no place for the target, say)."""
    from alfworld.gen.constants import VAL_ACTION_OBJECTS, VAL_RECEPTACLE_OBJECTS
    if layout.room not in ROOM_OF_TASK.get(kind, ROOMS):
        return None
    lies = ROOMS[layout.room][1]
    tool, property_ = TOOL.get(kind, (None, None))
    here = layout.receptacles
    spots = {o: [i for i, r in enumerate(here) if o in VAL_RECEPTACLE_OBJECTS[r]] for o in lies if o != "DeskLamp"}
    # What the package's table leaves out: on which furniture a desk lamp stands.
    spots["DeskLamp"] = [i for i, r in enumerate(here) if r in ("Desk", "SideTable", "Shelf", "CoffeeTable", "Dresser")]

    look = kind == "look_at_obj_in_light"
    obj = rng.choice(sorted(o for o in lies if o != "DeskLamp" and (not tool or o in VAL_ACTION_OBJECTS[property_])))
    recep = "DeskLamp" if look else rng.choice(sorted(set(here) - {tool}))
    starts = [i for i in spots[obj] if here[i] != recep]
    if not starts or not (look or any(here[i] == recep for i in spots[obj])) or (look and not spots["DeskLamp"]):
        return None
    copies = rng.randint(2, 3) if kind == "pick_two_obj_and_place" else rng.choice([1, 1, 2])
    placed = [(obj, rng.choice(starts)) for _ in range(copies)]
    if look:
        placed.append(("DeskLamp", rng.choice(spots["DeskLamp"])))
    others = sorted(o for o in lies if o not in (obj, "DeskLamp") and spots[o])
    for _ in range(rng.randint(*difficulty.objects) - len(placed)):
        other = rng.choice(others)
        placed.append((other, rng.choice(spots[other])))
    return Game((kind, obj, recep, layout.scene), tuple(placed), layout)


def problem_pddl(game: Game) -> str:
    """The game as a PDDL problem, in the words of the published initial states."""
    from alfworld.gen.constants import OPENABLE_CLASS_SET, VAL_ACTION_OBJECTS, VAL_RECEPTACLE_OBJECTS
    from alfworld.gen.goal_library import gdict
    kind, obj, recep, _ = game.task
    # The engine's names ("sinkbasin 1") are made from ids: type, bar, number; a basin has its own form.
    receptacles = [(f"{r[:-5]}_bar_{i}_bar_{r}" if r.endswith("Basin") else f"{r}_bar_{i}", r)
                   for i, r in enumerate(game.layout.receptacles)]
    objects = [(f"{o}_bar_{i}", o, at) for i, (o, at) in enumerate(game.placed)]
    receptacle_types, object_types = sorted({r for _, r in receptacles}), sorted({o for _, o, _ in objects})

    declared = ["agent1 - agent", "loc_bar_0 - location"] + [f"loc_bar_{i + 1} - location" for i in range(len(receptacles))]
    declared += [f"{name} - receptacle" for name, _ in receptacles] + [f"{name} - object" for name, _, _ in objects]
    declared += [f"{r}Type - rtype" for r in receptacle_types] + [f"{o}Type - otype" for o in object_types]
    facts = ["atLocation agent1 loc_bar_0"]
    for i, (name, r) in enumerate(receptacles):
        facts += [f"receptacleType {name} {r}Type", f"receptacleAtLocation {name} loc_bar_{i + 1}"]
        facts += [f"openable {name}"] * (r in OPENABLE_CLASS_SET)
    facts += [f"canContain {r}Type {o}Type" for r in receptacle_types for o in object_types
              if o in VAL_RECEPTACLE_OBJECTS[r]]
    for name, o, at in objects:
        facts += [f"objectType {name} {o}Type", f"inReceptacle {name} {receptacles[at][0]}",
                  f"objectAtLocation {name} loc_bar_{at + 1}", f"{'toggleable' if o == 'DeskLamp' else 'pickupable'} {name}"]
        facts += [f"{p.lower()} {name}" for p in ("Cleanable", "Heatable", "Coolable") if o in VAL_ACTION_OBJECTS[p]]
    goal = gdict[kind]["pddl"].format(obj=obj, recep=recep, toggle="DeskLamp").replace("#", "-").strip()
    return "\n".join(["(define (problem made)", "(:domain alfred)", "(:objects", *declared, ")", "(:init",
                      *(f"({fact})" for fact in facts), ")", goal])


def write_game(folder: Path, game: Game, rng: random.Random, planner: Planner) -> bool:
    """Write game.tw-pddl and traj_data.json; False, and no game file, if the planner finds no solution."""
    from alfworld.gen.goal_library import gdict
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
    kind, obj, recep, scene = game.task
    look = kind == "look_at_obj_in_light"
    sentence = rng.choice(gdict[kind]["templates"]).format(obj=obj.lower(), recep=recep.lower(), toggle=recep.lower())
    data = {"pddl_domain": Path(ALFRED_PDDL_PATH).read_text(), "pddl_problem": problem_pddl(game), "solvable": True,
            "grammar": Path(ALFRED_TWL2_PATH).read_text().replace("UNKNOWN GOAL", sentence)}
    folder.mkdir(parents=True)
    trial = folder / "unplanned.json"
    trial.write_text(json.dumps(data))
    data["walkthrough"] = planner.plan(trial)
    trial.unlink()
    if not data["walkthrough"]:
        folder.rmdir()
        return False
    params = {"object_target": obj, "parent_target": "" if look else recep, "toggle_target": recep if look else "",
              "mrecep_target": "", "object_sliced": False}
    (folder / "traj_data.json").write_text(json.dumps({"task_type": kind, "task_id": folder.name, "pddl_params": params,
                                                       "scene": {"scene_num": scene}}))
    (folder / "game.tw-pddl").write_text(json.dumps(data))
    return True


def make_split(root: Path, split: str, number: int, layouts: list[Layout], difficulty: Difficulty, seed: int, planner,
               played: set) -> None:
    """Write `number` games, the task types in turn. `played`: the tasks that later splits must not repeat; added to."""
    rng, games, own = random.Random(f"{seed} {split}"), set(), set()
    bar = tqdm(total=number, desc=f"making {split} games", unit="game", leave=False, disable=None)
    for trial in count():
        kind = TASK_TYPES[len(games) % len(TASK_TYPES)]
        game = make_game(kind, rng.choice(layouts), difficulty, rng)
        if game is None or game in games or game.task in played:
            if trial > 1000 * (number + 1):
                raise ValueError(f"no more new games for {split}: ask for fewer, or for larger households")
            continue
        if write_game(root / LEVEL / split / game.folder() / f"trial_{seed}_{trial:06d}", game, rng, planner):
            games.add(game)
            own.add(game.task)
            bar.update()
        if len(games) == number:
            break
    bar.close()
    played |= own


def make_all_layouts(difficulty: Difficulty, seed: int, per_room: tuple[int, int], taken: set) -> tuple[list, list]:
    """(layouts trained on, layouts never seen in training), `per_room` of each; all are added to `taken`."""
    rng = random.Random(f"{seed} layouts")
    return tuple([x for room in ROOMS for x in make_layouts(number, room, difficulty, rng, taken)] for number in per_room)


def make_games(root: Path, numbers: dict[str, int], difficulty: Difficulty, seed: int, cache: Path | None,
               per_room: tuple[int, int] = LAYOUTS_PER_ROOM, taken: set | None = None) -> None:
    """Make games below `root`, so many for each split. `per_room`: layouts trained on, and never seen; none is in `taken`."""
    trained, unseen = make_all_layouts(difficulty, seed, per_room, set() if taken is None else taken)
    planner, played = Planner(cache), set()
    for split in SPLITS:
        if numbers.get(split):
            make_split(root, split, numbers[split], unseen if split == "valid_unseen" else trained, difficulty, seed, planner,
                       played)


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    for split, number in zip(SPLITS, (24, 12, 12)):
        parser.add_argument(f"--{split.replace('_', '-')}", type=int, default=number)
    parser.add_argument("--households", type=Difficulty.parse, default="4-6x4-7", help="receptacles x objects")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make_games(args.out, {split: getattr(args, split) for split in SPLITS},
               args.households, args.seed, cache=None)
    print(f"made {args.out / LEVEL}")


if __name__ == "__main__":
    main()
