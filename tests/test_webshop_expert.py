"""seed/envs/webshop_expert.py: reads tasks and pages, shops well or carelessly, and writes skills that are true of their trajectories."""
import random
import re
from dataclasses import replace

import pytest
from webshop_fakes import made, made_root  # noqa: F401  (fixtures)

from seed.envs.webshop import parse_action
from seed.envs.webshop_expert import Notebook, Wish, decide, hindsight, hints, parse_goal
from seed.trajectory import Context, Step, Trajectory


def play(env, task, rng, slips=0.0, turns=15, skill=None, careless=False):
    """(trajectory, the shop's own record of the purchase or None)."""
    turn = env.reset(0, task)
    trajectory, bought = Trajectory(replace(task, description=turn.description), 0, 0), None
    book = Notebook(parse_goal(turn.description))
    book.read(None, turn.observation)
    for step in range(1, turns + 1):
        thought, action = decide(book, turn.admissible, rng, hints(skill) if skill else (), careless)
        assert action in turn.admissible or action.startswith("search[") and "search[<your query>]" in turn.admissible
        action = rng.choice(turn.admissible) if rng.random() < slips else action
        context, visit = Context(trajectory.task, (), turn.observation, turn.admissible, step), env.visits[0]
        turn = env.step(0, action)
        book.read(action, turn.observation)
        trajectory.steps.append(Step(context, [], [], [], f"<think>{thought}</think><action>{action}</action>", action, True, True, True,
                                     turn.reward, turn.observation))
        if turn.done:
            bought = visit
            break
    trajectory.success = turn.won
    return trajectory, bought


@pytest.mark.parametrize("sentence, wish", [
    ("Find me slim fit, quick drying hoodie with color: red, and size: large, and price lower than 40.00 dollars",
     Wish("slim fit, quick drying hoodie", {"color": "red", "size": "large"}, 40.0)),
    ("Find me loud kettles, and price lower than 990.00 dollars", Wish("loud kettles", {}, 990.0)),
    ("Find me loud kettles with size: 12\"x16\"", Wish("loud kettles", {"size": "12\"x16\""}, float("inf"))),
    ("i want a kettle with a lid, and price lower than 30.00 dollars", Wish("i want a kettle with a lid", {}, 30.0)),
    ("", Wish("-", {}, float("inf")))])
def test_tasks_are_read(sentence, wish):
    assert parse_goal(sentence) == wish


def test_every_made_task_is_understood(made):
    for goal in made.by_id.values():
        assert parse_goal(goal.text) == Wish(goal.product.instruction.removeprefix("Find me "), dict(goal.options), goal.price_upper)


def test_care_pays_and_a_skill_helps(made):
    tasks = made.tasks("train")[::2]
    won = lambda **how: sum(play(made, task, random.Random(task.id), **how)[0].success for task in tasks) / len(tasks)
    assert won() >= 0.8 and won(careless=True) <= 0.3 and 0.2 <= won(slips=0.35) <= 0.6
    skills = {task.id: hindsight(play(made, task, random.Random(task.id), slips=0.35)[0])[1] for task in tasks}
    with_skill = sum(play(made, task, random.Random(task.id), slips=0.35, skill=skills[task.id])[0].success for task in tasks)
    assert with_skill / len(tasks) > won(slips=0.35) + 0.1


def test_every_clause_of_a_skill_is_true_of_its_trajectory(made):
    """Sloppy and careless play, checked against what the shop itself recorded."""
    seen = set()
    for number, task in enumerate(made.tasks("train") * 2):
        trajectory, bought = play(made, task, random.Random(number), slips=0.3, careless=number % 2 == 0)
        goal = made.by_id[task.id]
        for name_places in (True, False):
            summary, skill = hindsight(trajectory, name_places)
            head, _, avoid = skill.partition(" Do not ")
            search, target, *click, last = head.split(", open ")[0], *head.split(", open ")[1].split(", ")
            assert search == f"Search {goal.product.instruction.removeprefix('Find me ')}" and last == "buy it."
            assert click == ([f"click {' and '.join(dict(goal.options).values())}"] if goal.options else [])
            listed = " ".join(step.context.observation for step in trajectory.steps)
            if hints(skill):
                assert name_places and f"'{target.upper()}'" in listed
            else:
                assert target == f"one below {goal.price_upper:.0f} dollars" and not re.search(r"\bb\d{4}\b", skill)
            left = [value for name, value in goal.options if bought and bought.chosen.get(name) != value]
            dear = bought and float(bought.product.price_tag.split(" ")[0][1:]) > goal.price_upper
            what = ("success" if trajectory.success else "nothing" if bought is None else "dear" if dear else "left" if left else "unfit")
            expected = {"success": "steps.", "nothing": "Nothing", "dear": "cost too much", "left": f"without {' and '.join(left)}.",
                        "unfit": "not what"}
            assert expected[what] in summary and bool(avoid) == (what != "success")
            if what == "success":
                assert not name_places or hints(skill) == (bought.product.asin.lower(),)
            elif name_places and what in ("dear", "unfit"):
                assert avoid == f"buy {bought.product.asin.lower()}." and hints(skill) != (bought.product.asin.lower(),)
            seen.add(what)
    assert seen == {"success", "nothing", "dear", "left", "unfit"}


def test_a_replaced_option_is_not_taken_for_the_wanted_one(made):
    goal = next(goal for goal in made.by_id.values() if len(goal.product.options) == 2 and goal.options[0][0] == "color")
    (_, wanted), (_, other_value) = goal.options
    wrong = next(value for value in goal.product.options["color"] if value != wanted)
    book, turn = Notebook(parse_goal(goal.text)), made.reset(0, made.tasks("train")[0])
    book.read(None, turn.observation)
    actions = [f"search[{goal.product.name}]", *(f"click[{what}]" for what in (goal.product.asin.lower(), wanted, other_value, wrong))]
    for action in actions:
        assert parse_action(action)[0] == "search" or action in turn.admissible
        turn = made.step(0, action)
        book.read(action, turn.observation)
    assert book.chosen == made.visits[0].chosen and book.chosen["color"] == wrong
    assert decide(book, turn.admissible, random.Random(0), hints=(goal.product.asin.lower(),))[1] == f"click[{wanted}]"


def test_rules_never_raise_on_random_play(made):
    for number, task in enumerate(made.tasks("train")[:60]):
        trajectory, _ = play(made, task, random.Random(number), slips=0.9)
        trajectory.steps = trajectory.steps[:1 + number % len(trajectory.steps)]
        assert all(text.strip() for text in hindsight(trajectory))
