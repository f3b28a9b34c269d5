"""seed/envs/ezpoints.py: worked cases of the original, its traps, deals and splits, the vision form, a rollout."""
import itertools
import json
import random
import re

import pytest
from conftest import same_in_two_processes, spec_params
from fakes import random_policy

from seed.analyzer import analyzer_prompt
from seed.augment import H
from seed.config import Config
from seed.envs.base import GameError
from seed.envs.ezpoints import HELD_OUT, SPLITS, TOKENS, WORDS, EZPoints, deal, deals, numbers, open_env, play, read, worth
from seed.envs.ezpoints_picture import picture
from seed.errors import UserError
from seed.library import Library
from seed.prompts import render
from seed.rollout import rollout
from seed.trajectory import Task

IDS = {**{token: number for number, token in enumerate(TOKENS)}, "invalid": -1}


@pytest.mark.parametrize("case", spec_params("cases_ezpoints.json", "transitions"))
def test_worked_episodes(case):
    formula = ()
    for step in case["steps"]:
        formula, reward, ended, truncated = play(tuple(case["numbers"]), formula, step["action"])
        assert "".join(formula) == step["formula"] and reward == step["reward"]
        assert (ended, truncated, reward > 0) == (step["terminated"], step["truncated"], step["won"])


@pytest.mark.parametrize("case", spec_params("cases_ezpoints.json", "projection"))
def test_worked_replies(case):
    reply = read(case["text"], TOKENS)
    assert (IDS[reply.action], int(reply.valid), reply.admissible) == (case["action"], case["valid"], case["action"] != -1)


@pytest.mark.parametrize("case", spec_params("cases_ezpoints.json", "generated"))
def test_the_originals_deals(case):
    assert deal(case["seed"]) == tuple(case["cards"]) and numbers(deal(case["seed"])) == tuple(case["numbers"])


@pytest.mark.parametrize("text, action", [
    ('{"thoughts": "1 2 3 + 10", "action": "10"}', "10"),     # what stands before the action does not count
    ('{"action": "10 10"}', "10"),                            # one kind of token, twice
    ('{"action": "101"}', "invalid"),                         # 10 and 1
    ('{"ACTION": "="}', "="),
    ('{"action": "7"} because 7', "7"), ('{"action": "7"} because 5', "invalid"), ('{"action": "7", "thoughts": "5"}', "invalid"),
    ("it is 7", "7"), ("it is 10", "invalid"), ("", "invalid"), ("=", "="), ("7.", "invalid"),    # without "action": the last character
    ('{"action" : "7"}', "invalid"), ("{'action': '7'}", "invalid"), ('{"action" : 7', "7"),
    ('{"action": "12"}', "invalid"), ('{"action": "11"}', "1"), ('{"action": "plus"}', "invalid"), ('{"action": "0"}', "invalid")])
def test_parser_table(text, action):
    reply = read(text, TOKENS)
    assert (reply.action, reply.valid, reply.admissible) == (action, action != "invalid", action in TOKENS)


def test_parser_never_raises():
    rng, pieces = random.Random(0), ['"action":', '"Action" :', "{", "}", "10", "1", "+", "=", "İ", "\n", "去", ""]
    for _ in range(3000):
        assert read("".join(rng.choice(pieces) for _ in range(rng.randint(0, 9))), TOKENS).action in IDS


def test_the_value_is_pythons():
    """Every formula that a game can hold: 12 by `worth` exactly where Python says 12. (What Python cannot read is worth nothing.)"""
    for values in ((5, 7), (10, 2), (6, 6), (3, 4), (2, 6), (1, 2), (1, 10)):
        tokens, wins = [*map(str, sorted(set(values))), "+", "*"], 0
        for length in range(6):
            for formula in itertools.product(tokens, repeat=length):
                used = [int(token) for token in formula if token.isdigit()]
                if len(used) != 2 or any(used.count(value) > values.count(value) for value in used):
                    continue
                try:
                    python = eval("".join(formula)) == 12
                except SyntaxError:
                    python = False
                assert (worth(formula) == 12) == python, formula
                wins += python
                assert play(values, formula, "=") == (formula, 10.0 * python, True, False)
        assert wins > 0 or values == (1, 10)


def test_every_deal_is_solvable_and_has_no_ace():
    for seed in range(2000):
        cards = deal(seed)
        a, b = numbers(cards)
        assert 12 in (a + b, a * b) and "A" not in cards[0] + cards[1]
    assert sum(sum(numbers(deal(seed))) == 12 for seed in range(2000)) == 1659      # the original's count of 2000 seeds


def test_splits():
    cards = {split: [cards for _, cards in deals()[split]] for split in SPLITS}
    everything = sum(cards.values(), [])
    assert {split: len(found) for split, found in cards.items()} == {"train": 160, "valid_seen": 80, "valid_unseen": 64}
    # By hand: 4 * 4 suits, two orders; 2 goes with 10, J, Q and K; two sixes have no order.
    ordered = [(2, 10)] * 4 + [(3, 9), (4, 8), (5, 7), (2, 6), (3, 4)]
    assert len(set(everything)) == len(everything) == 16 * 2 * len(ordered) + 16 == 304
    pairs = {split: {tuple(sorted(numbers(c))) for c in found} for split, found in cards.items()}
    assert pairs["valid_unseen"] == set(HELD_OUT) and not pairs["train"] & pairs["valid_unseen"] and pairs["valid_seen"] == pairs["train"]
    assert all((seed < 65535) == (split == "train") and deal(seed) == c for split in SPLITS for seed, c in deals()[split])


def config(**options):
    return Config(tasks_per_update=2, group_size=3, max_turns=8, train_games=30, seen_games=200, unseen_games=10, **options)


def test_tasks(capsys):
    env = open_env(config())
    assert capsys.readouterr().err == "games: deals of two cards: train 30, valid_seen 80, valid_unseen 10 (there are no more)\n"
    assert env.slots == 6 and env.splits() == list(SPLITS) and env.root.name == "ezpoints-v1"
    everything = EZPoints(1)
    for split in SPLITS:
        tasks = env.tasks(split)
        assert tasks == everything.tasks(split)[:len(tasks)] == sorted(tasks, key=lambda task: task.id)
        for task in everything.tasks(split):
            assert {"sum": 12 == sum(numbers(deal(task.seed))), "product": 12 != sum(numbers(deal(task.seed)))}[task.type]
            assert Library("ezpoints").skill(task)
    with pytest.raises(UserError, match="no split test: expected one of train"):
        env.tasks("test")
    with pytest.raises(UserError, match="--data folder: this game has no data files"):
        open_env(config(data="folder"))


@pytest.mark.parametrize("task", [Task("ezpoints", "train/00005-D5-H7", "sum", seed=5), Task("ezpoints", "x", "sum"),
                                  Task("ezpoints", "train/00004-D5-H7", "sum", seed=5)])
def test_a_task_of_another_deal_is_named(task):
    with pytest.raises(GameError, match=task.id):
        EZPoints(1).reset(0, task)


def task_of(values):
    return next(task for split in SPLITS for task in EZPoints(1).tasks(split) if numbers(deal(task.seed)) == values)


def test_a_game_is_won_in_text():
    env = EZPoints(2)
    first = env.reset(0, task_of((10, 2)))
    assert first == env.reset(1, task_of((10, 2))) and first.observation.startswith("Cards: ") and first.admissible == TOKENS
    assert re.fullmatch(r"Cards: (10|J|Q|K) of (hearts|spades|diamonds|clubs), 2 of (hearts|spades|diamonds|clubs)\. Formula: empty",
                        first.observation)
    turns = [env.step(0, token) for token in ("10", "+", "2", "=")]
    assert [t.observation.split("Formula: ")[1] for t in turns] == ["10", "10 +", "10 + 2", "10 + 2"]
    assert [(t.reward, t.done, t.won) for t in turns] == [(0, False, False)] * 3 + [(10.0, True, True)]
    assert env.step(1, "still").observation == first.observation


def test_what_changes_nothing_and_what_loses():
    env = EZPoints(1)
    start = env.reset(0, task_of((5, 7)))
    for action in ("3", "10", "invalid", "", "5+", "12"):
        turn = env.step(0, action)
        assert (turn.observation, turn.reward, turn.done) == (start.observation, 0, False)
    env.step(0, "5")
    assert env.step(0, "5").observation.endswith("Formula: 5")              # used up
    lost = env.step(0, "=")                                                 # one card only
    assert (lost.reward, lost.done, lost.won) == (0, True, False)
    env.reset(0, task_of((5, 7)))
    turns = [env.step(0, token) for token in ("5", "*", "7", "=")]
    assert turns[-1].done and not turns[-1].won
    env.reset(0, task_of((2, 6)))
    assert [env.step(0, token) for token in ("2", "2")][-1].observation.endswith("Formula: 2")


def test_a_dead_formula_does_not_end_the_game():
    env = EZPoints(1)
    env.reset(0, task_of((5, 7)))
    texts = [env.step(0, token).observation for token in ("+", "+", "+", "5", "+", "7")]
    assert texts[-1].endswith("Formula: + + + 5 + 7")
    turn = env.step(0, "=")                                                 # six tokens: worth 12, and too late
    assert (turn.observation, turn.reward, turn.done, turn.won) == (texts[-1], 0, False, False)


def test_two_processes_with_other_hash_seeds_deal_the_same():
    code = ("import json; from seed.envs.ezpoints import EZPoints\nenv = EZPoints(1)\n"
            "print(json.dumps([(t.id, t.type, t.seed, env.reset(0, t).observation) for s in env.splits() for t in env.tasks(s)]))")
    assert len(json.loads(same_in_two_processes(code))) == 304


# --- the vision form

def test_in_the_vision_form_the_text_does_not_tell_the_cards():
    text, vision = EZPoints(1), EZPoints(1, vision=True)
    told = set()
    for task in vision.tasks("train"):
        plain, turn = text.reset(0, task), vision.reset(0, task)
        assert plain.images == () and turn.images == (picture(deal(task.seed), ()),)
        told.add((turn.observation, turn.description, turn.admissible))
        plain, turn = text.step(0, "+"), vision.step(0, "+")
        assert turn.images == (picture(deal(task.seed), ("+",)),) and turn.observation.endswith("Formula: +")
        told.add((turn.observation, turn.admissible))
    assert len(told) == 2


# --- played by a policy

OPTIONS = dict(max_turns=8, history_length=2, temperature=1.0, max_prompt_tokens=4096, max_reply_tokens=6, batch_tokens=20_000)


@pytest.mark.parametrize("vision", [False, True])
def test_a_rollout(vision, seeing_policy):
    settings = config()
    settings.vision = vision
    env = open_env(settings)
    tasks = env.tasks("train")[:2]
    trajectories, crashed = rollout(seeing_policy if vision else random_policy(), env, [(t, g, c) for g, t in enumerate(tasks) for c in range(2)], "s", **OPTIONS)
    assert crashed == [] and len(trajectories) == 4
    assert trajectories[0].steps[0].context == trajectories[1].steps[0].context
    for t in trajectories:
        assert t.steps[-1].observation_after and (len(t.steps) == 8 or t.steps[-1].action == "=")
        step = t.steps[2]
        prompt = render(step.context)
        for part in (WORDS.head, t.task.description, step.context.observation, "['1'\n '2'", "'='", WORDS.instruction[1:]):
            assert part in prompt
        assert f"[Observation 2: '{t.steps[1].context.observation}', Action 2: '{t.steps[1].action}']" in prompt
        assert analyzer_prompt(t)[0].startswith(WORDS.analysis) and t.steps[-1].observation_after in analyzer_prompt(t)[0]
        assert len(step.context.images) == vision and H(step.context, "Add.").images is step.context.images
        assert ("Cards: " in prompt) != vision
