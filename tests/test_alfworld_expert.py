"""seed/envs/alfworld_expert.py: parses every task sentence, wins every made game, writes skills that can be checked against the game."""
import random

import pytest
from conftest import shared
from fakes import trajectory

from seed.envs.alfworld import TASK_TYPES, AlfWorld
from seed.envs.alfworld_expert import hindsight, kind_of, parse_goal
from seed.tiny import play


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


def replay(t):
    """What an episode shows, read off its commands and texts without the notebook."""
    goal = parse_goal(t.task.description)
    facts = dict(seen={}, taken=[], visits=[], opened=set(), treated=set(), lamps=set())
    at = None
    for step in t.steps:
        action, text = step.action, step.observation_after
        if text.startswith("Nothing happens"):
            continue
        if action.startswith("go to "):
            at = action[6:]
            facts["visits"].append(at)
        if action.startswith(("go to ", "open ")) and "you see" in text:
            facts["opened"].add(at)
            for item in text.split("you see")[1].replace(" and ", " ").replace(".", "").split(","):
                item = item.strip().removeprefix("a ").removeprefix("an ")
                if item.startswith(goal.obj + " "):
                    facts["seen"].setdefault(item, at)
                if item.startswith("desklamp "):
                    facts["lamps"].add(at)
        if action.startswith("take "):
            facts["taken"].append(action[5:].split(" from ")[0])
        if goal.verb and action.startswith(goal.verb + " ") and goal.obj + " " in action:
            facts["treated"].add(action)
    return goal, facts


def test_every_clause_of_a_skill_is_true_of_its_trajectory(env):
    """Sloppy and careless play, checked against an independent reading of the episode."""
    seen = set()
    for number in range(240):
        task = env.tasks("train")[number % 18]
        t = play(env, task, random.Random(number), slips=0.35, turns=15, shown=5, careless=number % 2 == 0)
        goal, facts = replay(t)
        summary, skill = hindsight(t)
        body, _, avoid = skill.partition(" Do not ")
        find, take, *treat, last = body.rstrip(".").split(", ")
        places = find.removeprefix(f"Find {goal.obj}").removeprefix(" in ").replace(" and ", " or ").split(" or ")
        if facts["seen"]:
            assert set(places) <= set(facts["seen"].values()), (skill, facts)
        elif places != [""]:
            assert not set(places) & facts["opened"] and len(places) <= 3
        assert take == "take it" and treat == ([f"{goal.verb} it with {goal.tool}"] if goal.verb else [])
        if goal.kind == "look_at_obj_in_light":
            assert last == "use desklamp" or last.removeprefix("use desklamp in ") in facts["lamps"]
        else:
            assert last.startswith(f"put {'both' if goal.number == 2 else 'it'} in {goal.recep} ")
        assert bool(avoid) <= (not t.success)
        if avoid.startswith("take "):
            assert any(item.startswith(avoid[5:].rstrip(".") + " ") for item in facts["taken"]) and goal.obj not in avoid.split()
        elif avoid:
            place = avoid.removeprefix("go back to ").rstrip(".")
            assert facts["visits"].count(place) > 1 and place not in places and kind_of(place) not in (goal.recep, goal.tool)
        got = [item for item in facts["taken"] if item.startswith(goal.obj + " ")]
        for words, truth in (("was not found", not facts["seen"]), ("was seen but not taken", facts["seen"] and not got),
                             ("did not", got and goal.verb), ("was done in", t.success), ("only once", goal.number == 2),
                             ("was not brought", got), ("was not used", got and goal.kind == "look_at_obj_in_light")):
            if words in summary:
                seen.add(words)
                assert truth, (summary, t.task.description)
                break
        else:
            pytest.fail(f"an unknown summary: {summary}")
        assert bool(facts["seen"]) or t.success or "not found" in summary
    assert len(seen) >= 6


def test_hindsight_of_a_failure_says_what_to_do_instead():
    t = trajectory(steps=3, success=False, description="put a mug in shelf.",
                   text="-= Welcome =- You see a desk 1, and a shelf 1.\n\nYour task is to: put a mug in shelf.")
    summary, skill = hindsight(t)
    assert summary == "The mug was not found." and skill.startswith("Find mug in desk 1")
    assert hindsight(trajectory(description="Tidy up.")) is None
