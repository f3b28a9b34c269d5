"""seed/envs/alfworld_games.py: seeded, disjoint, solvable, in ALFWorld's layout."""
import json
import random
from collections import Counter

import pytest
from conftest import same_in_two_processes

from seed.envs.alfworld import TASK_TYPES
from seed.envs.alfworld_games import ROOMS, Difficulty, make_game, make_layouts, problem_pddl
from seed.errors import UserError


def files(root, split):
    return {p.parent.relative_to(root / "json_2.1.1" / split).as_posix(): json.loads(p.read_text())
            for p in (root / "json_2.1.1" / split).glob("*/*/game.tw-pddl")}


def test_splits_share_nothing(games):
    splits = {split: files(games, split) for split in ("train", "valid_seen", "valid_unseen")}
    problems = [game["pddl_problem"] for split in splits.values() for game in split.values()]
    assert len(problems) == 30 == len(set(problems))
    scenes = {split: {name.split("/")[0].split("-")[-1] for name in names} for split, names in splits.items()}
    tasks = {split: {name.split("/")[0] for name in names} for split, names in splits.items()}
    assert scenes["valid_seen"] <= scenes["train"] or not scenes["valid_seen"] & scenes["valid_unseen"]
    assert not scenes["train"] & scenes["valid_unseen"] and not tasks["train"] & tasks["valid_seen"]


def test_every_game_was_planned_and_all_types_occur(games):
    for split, number in (("train", 18), ("valid_seen", 6), ("valid_unseen", 6)):
        made = files(games, split)
        assert all(game["solvable"] is True and len(game["walkthrough"]) >= 3 for game in made.values())
        assert Counter(name.split("-")[0] for name in made) == {kind: number // 6 for kind in TASK_TYPES}


def test_traj_data_has_what_alfworld_reads(games):
    for path in (games / "json_2.1.1").glob("*/*/*/traj_data.json"):
        data = json.loads(path.read_text())
        kind, obj, _, recep, scene = path.parent.parent.name.split("-")
        assert data["task_type"] == kind and data["pddl_params"]["object_target"] == obj and data["scene"]["scene_num"] == int(scene)
        assert recep in (data["pddl_params"]["parent_target"], data["pddl_params"]["toggle_target"])


def draw(seed):
    rng, taken = random.Random(seed), set()
    layouts = [x for room in ROOMS for x in make_layouts(3, room, Difficulty(), rng, taken)]
    made = [make_game(kind, rng.choice(layouts), Difficulty(), rng) for kind in TASK_TYPES * 10]
    return [problem_pddl(game) for game in made if game]


def test_games_follow_from_the_seed_and_not_from_the_hash_seed():
    code = "import sys; sys.path[:0] = ['tests', '.']; from test_alfworld_games import draw; import hashlib\nprint(hashlib.md5(repr(draw(5)).encode()).hexdigest())"
    assert same_in_two_processes(code) and draw(5) != draw(6) and len(draw(5)) > 20


def test_no_target_starts_where_it_should_end():
    rng, taken = random.Random(0), set()
    layouts = [x for room in ROOMS for x in make_layouts(5, room, Difficulty(), rng, taken)]
    seen = 0
    for i in range(600):
        game = make_game(TASK_TYPES[i % 6], rng.choice(layouts), Difficulty(), rng)
        if game:
            kind, obj, recep, _ = game.task
            starts = {game.layout.receptacles[at] for o, at in game.placed if o == obj}
            assert recep not in starts
            seen += 1
    assert seen > 150


def test_layouts_differ_and_hold_what_their_tasks_need():
    rng, taken = random.Random(0), set()
    for room in ROOMS:
        layouts = make_layouts(8, room, Difficulty(), rng, taken)
        assert len({x.receptacles for x in layouts}) == 8 == len({x.scene for x in layouts})
        if room == "kitchen":
            assert all({"Fridge", "Microwave", "SinkBasin"} <= set(x.receptacles) for x in layouts)
    with pytest.raises(ValueError, match="there are not"):
        make_layouts(5000, "bathroom", Difficulty((4, 4), (4, 4)), rng, taken)


@pytest.mark.parametrize("text", ["4-6", "4x5", "6-4x4-7", "1-2x4-7", "4-6x4-70", "four"])
def test_bad_sizes_say_what_is_expected(text):
    with pytest.raises(UserError, match="expected receptacles x objects"):
        Difficulty.parse(text)
