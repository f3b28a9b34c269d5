"""seed/envs/sokoban_expert.py and ezpoints_expert.py: they win by what the agent can read, and what they write is true."""
import random
import re
from collections import Counter

import pytest

from seed.analyzer import answer_json, read_answer
from seed.envs import ezpoints, ezpoints_expert, sokoban, sokoban_expert
from seed.envs.ezpoints import EZPoints
from seed.envs.sokoban import Sokoban
from seed.envs.sokoban_levels import MOVES, make_levels, push, write_levels
from seed.trajectory import Context, Step, Task, Trajectory


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rooms")
    for name, boxes in (("train", 1), ("valid_seen", 2)):
        write_levels(folder / f"{name}.xsb", make_levels({"train": 40 if boxes == 1 else 6}, (6, 6), boxes, 5)["train"])
    return folder


@pytest.fixture(params=["sokoban", "ezpoints"])
def game(request, rooms):
    """(expert, read, environment, turns)"""
    if request.param == "sokoban":
        return sokoban_expert, sokoban.read, Sokoban(rooms, 1, 15), 15
    return ezpoints_expert, ezpoints.read, EZPoints(1), 8


def play(expert, env, task, rng, turns, slips=0.0, hints=(), careless=False):
    turn = env.reset(0, task)
    book, t = expert.Notebook(), Trajectory(Task(task.env, task.id, task.type, turn.description, task.seed), 0, 0)
    book.read(None, turn.observation)
    while len(t.steps) < turns and not turn.done:
        thought, action = expert.decide(book, turn.admissible, rng, hints, careless)
        assert action in turn.admissible and thought
        if rng.random() < slips:
            action = rng.choice(turn.admissible)
        context = Context(t.task, (), turn.observation, turn.admissible, len(t.steps) + 1)
        turn = env.step(0, action)
        book.read(action, turn.observation)
        t.steps.append(Step(context, [], [], [], expert.reply(thought, action), action, True, True, True, turn.reward, turn.observation))
    t.success = turn.won
    return t


def rate(expert, env, turns, **options):
    tasks = env.tasks("train")
    return sum(play(expert, env, task, random.Random(task.id), turns, **options).success for task in tasks) / len(tasks)


def test_the_careful_expert_wins_and_its_replies_are_well_formed(game):
    expert, read, env, turns = game
    for task in env.tasks("train"):
        t = play(expert, env, task, random.Random(0), turns)
        assert t.success
        for step in t.steps:
            reply = read(step.text, step.context.admissible)
            assert (reply.action, reply.valid) == (step.action, True)
    if env.name == "sokoban":
        assert all(len(play(expert, env, t, random.Random(0), turns).steps) == env.levels(rooms_file(env))[i].optimum
                   for i, t in enumerate(env.tasks("train")))


def rooms_file(env, split="train"):
    return env.files(split)[0]


def test_slips_and_carelessness_cost_games(game):
    expert, _, env, turns = game
    careless, sloppy, random_ = (rate(expert, env, turns, slips=s, careless=c) for s, c in ((0.0, True), (0.35, True), (1.0, True)))
    assert 1 > careless > random_ and 0.95 > sloppy > random_ and random_ < 0.4


def test_a_skill_is_followed(game):
    """The skill of a bad episode makes a careless player win: it names what this level or deal asks for."""
    expert, _, env, turns = game
    failed = [t for t in (play(expert, env, task, random.Random(task.id), turns, slips=0.5, careless=True) for task in env.tasks("train"))
              if not t.success]
    assert len(failed) >= 5
    for t in failed:
        skill = expert.hindsight(t)[1]
        assert expert.hints(skill)
        assert play(expert, env, t.task, random.Random(1), turns, hints=expert.hints(skill), careless=True).success, skill
        assert expert.hints(expert.hindsight(t, name_places=False)[1]) == ()


def test_a_wrong_hint_is_followed_too():
    env = EZPoints(1)
    t = play(ezpoints_expert, env, env.tasks("train")[0], random.Random(0), 8, hints=("6", "+", "2"))
    assert [s.action for s in t.steps] == ["6", "+", "2", "="] and not t.success      # 2 and 6 make 12 as a product


def test_what_sokobans_expert_writes_is_true(rooms):
    env, seen = Sokoban(rooms, 1, 15), Counter()
    for number in range(160):
        task = env.tasks("train")[number % 40]
        t = play(sokoban_expert, env, task, random.Random(number), 15, slips=(0.3, 0.9)[number % 2], careless=number % 4 > 1)
        level = env.levels(rooms_file(env))[int(task.id.split("/")[1])]
        states = [(level.player, level.boxes)]
        for step in t.steps:
            states.append(push(level, *states[-1], step.action))
        pushed = [s.action for s, a, b in zip(t.steps, states, states[1:]) if a[1] != b[1]]
        summary, skill = sokoban_expert.hindsight(t)
        named = list(sokoban_expert.hints(skill))
        assert read_answer(answer_json(summary, skill)) == (summary, skill, None)
        (box,), (target,) = level.boxes, level.targets
        assert skill.startswith(f"Go {dict(up='below', down='above', left='right of', right='left of')[named[0]]} the box")
        r, c = box
        for move in named:      # the named pushes lead the box onto its target over free cells
            r, c = r + MOVES[move][0], c + MOVES[move][1]
            assert (r, c) not in level.walls
        assert (r, c) == target
        if t.success:
            assert summary == f"On target after {len(t.steps)} moves." and named == pushed and "Do not" not in skill
        elif "stuck" in summary:
            direction = re.fullmatch(r"A box was stuck after a push (\w+)\.", summary)[1]
            assert direction in pushed and skill.endswith(f"Do not push it too far {direction}.")
            assert states[-1][1] & level.targets == set()
        else:
            assert summary == ("The moves ran out before all was on target." if pushed else "No box was pushed.")
        seen[summary.split()[0] + summary.split()[1]] += 1
        vague = sokoban_expert.hindsight(t, name_places=False)[1]
        assert not re.search(r"\b(up|down|left|right)\b", vague) and vague.startswith("Go to the far side")
    assert len(seen) == 4, seen


def test_several_boxes(rooms):
    env = Sokoban(rooms, 1, 40)
    for task in env.tasks("valid_seen"):
        t = play(sokoban_expert, env, task, random.Random(0), 40)
        assert t.success and "push them" in sokoban_expert.hindsight(t)[1]
        assert play(sokoban_expert, env, task, random.Random(0), 40, hints=("up",)).success


def test_what_ezpoints_expert_writes_is_true():
    env, seen = EZPoints(1), set()
    for number in range(1200):
        tasks = env.tasks("train") + env.tasks("valid_unseen")
        slips = (0.2, 0.5, 1.0)[number % 3]
        t = play(ezpoints_expert, env, tasks[number % len(tasks)], random.Random(number), 8, slips=slips, careless=True)
        a, b = ezpoints.numbers(ezpoints.deal(t.task.seed))
        summary, skill = ezpoints_expert.hindsight(t)
        x, operator, y = ezpoints_expert.hints(skill)
        assert (int(x), int(y)) == (a, b) and {"+": a + b, "*": a * b}[operator] == 12
        assert read_answer(answer_json(summary, skill)) == (summary, skill, None)
        vague = ezpoints_expert.hindsight(t, name_places=False)[1]
        assert vague.startswith("Add" if operator == "+" else "Multiply") and not any(c.isdigit() for c in vague.replace("Three", ""))
        actions, formula = [s.action for s in t.steps], t.steps[-1].observation_after.split("Formula: ")[1]
        shown = "" if formula == "empty" else formula
        facts = {"was worth 12": t.success, "too long": len(shown.split()) == 6, "was not ended": actions[-1] != "=",
                 "before both cards": actions[-1] == "=" and sum(map(str.isdigit, shown.split())) < 2,
                 "is no formula": actions[-1] == "=" and sum(map(str.isdigit, shown.split())) == 2, ", not 12": not t.success}
        words = next(words for words in facts if words in summary)
        assert facts[words], (summary, actions)
        if words == ", not 12":
            value = eval(shown.replace(" ", ""))
            assert summary == f"{shown} is {value}, not 12." and value != 12 and {"+", "*"} & set(shown.split())
            assert skill.endswith({"+": "Do not multiply.", "*": "Do not add."}[operator])
        if found := re.search(r"(\d+) is on no card", skill):
            assert found[1] in actions and int(found[1]) not in (a, b)
        assert t.success == ("Do not" not in skill and skill.count(".") == 1)
        seen.add(words)
    assert seen == set(facts)


def test_without_a_board_or_cards_in_the_text_there_is_no_hindsight(rooms):
    for expert, env in ((sokoban_expert, Sokoban(rooms, 1, 15, vision=True)), (ezpoints_expert, EZPoints(1, vision=True))):
        t = play(expert, env, env.tasks("train")[0], random.Random(0), 3)
        assert expert.hindsight(t) is None
