"""seed/envs/alfworld_notebook.py: every task sentence is understood, and what the notebook says is so in the game."""
import json
import random

import pytest
from conftest import shared

from seed.envs.alfworld import AlfWorld
from seed.envs.alfworld_expert import decide
from seed.envs.alfworld_notebook import Goal, Notebook, kind_of, parse_goal


@pytest.mark.parametrize("sentence, goal", [
    ("put a mug in shelf.", Goal("pick_and_place_simple", "mug", "shelf")),
    ("put some mug on shelf.", Goal("pick_and_place_simple", "mug", "shelf")),
    ("look at book under the desklamp.", Goal("look_at_obj_in_light", "book", "desklamp")),
    ("clean some ladle and put it in drawer.", Goal("pick_clean_then_place_in_recep", "ladle", "drawer", "clean", "sinkbasin")),
    ("put a hot apple in fridge.", Goal("pick_heat_then_place_in_recep", "apple", "fridge", "heat", "microwave")),
    ("cool some pan and put it in stoveburner.", Goal("pick_cool_then_place_in_recep", "pan", "stoveburner", "cool", "fridge")),
    ("find two book and put them in bed.", Goal("pick_two_obj_and_place", "book", "bed", number=2)),
    ("Tidy up.", None)])
def test_goals(sentence, goal):
    assert parse_goal(sentence) == goal


def test_every_real_task_is_understood():
    env = AlfWorld(shared("alfworld"), 1, None)
    for path in env.root.glob("json_2.1.1/*/*/*/traj_data.json"):
        data = json.loads(path.read_text())
        grammar = json.loads((path.parent / "game.tw-pddl").read_text())["grammar"]
        goal = parse_goal(grammar.split("Your task is to: ")[1].split('"')[0])
        params = data["pddl_params"]
        assert goal.kind == data["task_type"] and goal.obj == params["object_target"].lower()
        assert goal.recep == (params["parent_target"] or params["toggle_target"]).lower()


def test_undoing_the_treatment_counts():
    book = Notebook(parse_goal("put a hot mug in shelf."))
    book.read(None, "You see a shelf 1, and a microwave 1.")
    for action, text in (("go to shelf 1", "On the shelf 1, you see a mug 1."), ("take mug 1 from shelf 1", "You pick up"),
                         ("heat mug 1 with microwave 1", "You heat")):
        book.read(action, text)
    assert book.treated == {"mug 1"}
    book.read("cool mug 1 with fridge 1", "You cool")
    assert book.treated == set()


def test_a_notebook_follows_the_world(env):
    """What the notebook believes of the room agrees with the engine's own list of what can be taken."""
    task, rng = env.tasks("train")[0], random.Random(0)
    turn = env.reset(0, task)
    book = Notebook(parse_goal(turn.description))
    book.read(None, turn.observation)
    assert len(book.places) >= 4
    for _ in range(200):
        action = rng.choice(turn.admissible)
        turn = env.step(0, action)
        book.read(action, turn.observation)
        offered = {a.removeprefix("take ").split(" from ")[0] for a in turn.admissible if a.startswith("take ")}
        if offered:
            assert offered <= book.contents[book.at]   # lamps are seen and cannot be taken
        if book.holding:
            assert not offered and any(a.startswith(f"examine {book.holding}") for a in turn.admissible)
        thought, choice = decide(book, turn.admissible, rng)
        assert choice in turn.admissible and kind_of("mug 1") == "mug" and thought
