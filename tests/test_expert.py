"""seed/expert.py: parses every task sentence, wins every made game, writes skills that can be checked against the game."""
import json
import random

import pytest
from conftest import shared
from fakes import trajectory

from seed.envs.alfworld import TASK_TYPES, AlfWorld
from seed.expert import Goal, Notebook, decide, hindsight, kind_of, parse_goal
from seed.tiny import play


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


def test_the_expert_wins_every_made_game(env):
    for split in env.splits():
        for task in env.tasks(split):
            t = play(env, task, random.Random(task.id), slips=0.0, turns=40, shown=5)
            assert t.success, task.id
            assert all(s.admissible for s in t.steps) and t.steps[0].text.startswith("<think>find ")


def test_the_expert_wins_real_games():
    env = AlfWorld(shared("alfworld"), 1, None)
    first = {t.type: t for t in reversed(env.tasks("train"))}
    assert len(first) == len(TASK_TYPES)
    won = [play(env, t, random.Random(0), slips=0.0, turns=50, shown=5).success for t in first.values()]
    assert sum(won) >= 5


def test_hindsight_of_a_success_names_what_worked(env):
    for task in env.tasks("train"):
        t = play(env, task, random.Random(1), slips=0.0, turns=40, shown=5)
        goal, (summary, skill) = parse_goal(t.task.description), hindsight(t)
        taken = [s.action for s in t.steps if s.action.startswith(f"take {goal.obj}")]
        assert taken[0].split(" from ")[1] in skill and goal.obj in skill and f"{len(t.steps)} steps" in summary
        assert not goal.verb or f"{goal.verb} it with {goal.tool}" in skill
        assert "Do not" not in skill
        workflow = hindsight(t, name_places=False)[1]
        assert not any(c.isdigit() for c in workflow) and goal.obj in workflow     # a workflow names no place of this game


def test_hindsight_of_a_failure_says_what_to_do_instead():
    t = trajectory(steps=3, success=False, description="put a mug in shelf.",
                   text="-= Welcome =- You see a desk 1, and a shelf 1.\n\nYour task is to: put a mug in shelf.")
    summary, skill = hindsight(t)
    assert summary == "The mug was not found." and skill.startswith("Find mug in desk 1")
    assert hindsight(trajectory(description="Tidy up.")) is None


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
