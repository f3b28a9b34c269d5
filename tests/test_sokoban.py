"""seed/envs/sokoban.py: worked cases of the original, rewards and limits, text and picture, data, and a rollout of each form."""
import json
import random

import pytest
from conftest import same_in_two_processes, spec_params
from fakes import random_policy

from seed.analyzer import analyzer_prompt
from seed.augment import H
from seed.config import Config
from seed.envs import sokoban
from seed.envs.base import GameError
from seed.envs.sokoban import LEGEND, PICTURE, TILE, UNSEEN, WORDS, Sokoban, board_text, open_env, read, tile
from seed.envs.sokoban_levels import MOVES, read_board
from seed.errors import UserError
from seed.library import Library
from seed.prompts import render
from seed.rollout import rollout
from seed.trajectory import Task

FROM_GRID = str.maketrans("_OX√PS", " .$*@+")
IDS = {"still": 0, "invalid": 0, "up": 1, "down": 2, "left": 3, "right": 4}
FIRST = Task("sokoban", "train.xsb/00000", "short")


def env_of(grid, folder, max_steps=15, vision=False):
    """An environment whose first training level is this one."""
    env = Sokoban(folder, 1, max_steps, vision)
    env.known[folder / "train.xsb"] = [read_board([row.translate(FROM_GRID) for row in grid])]
    return env


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(sokoban, "CACHE", tmp_path / "data")
    return Config(tasks_per_update=2, group_size=3, max_turns=15, train_games=12, seen_games=6, unseen_games=5)


@pytest.mark.parametrize("case", spec_params("cases_sokoban.json", "transitions"))
def test_worked_episodes(case, tmp_path):
    env = env_of(case["start"], tmp_path, case["max_steps"])
    turn = env.reset(0, FIRST)
    assert turn.observation == case["start_observation"] and not (turn.done or turn.won)
    for step in case["steps"]:
        before, turn = turn, env.step(0, step["action"])
        assert turn.observation == board_text(step["grid"])
        assert turn.reward == pytest.approx(step["reward"], abs=1e-9)
        assert (turn.done, turn.won) == (step["done"], step["won"])
        assert (turn.observation != before.observation) == step["effective"]


@pytest.mark.parametrize("case", spec_params("cases_sokoban.json", "projection"))
def test_worked_replies(case):
    reply = read(case["text"], tuple(MOVES))
    assert (IDS[reply.action], int(reply.valid)) == (case["action"], case["valid"])
    assert reply.admissible == (case["action"] != 0)


@pytest.mark.parametrize("text, action, valid", [
    ("<think>a</think><action>go left, then up</action>", "up", True),                 # the first of the list, not of the text
    ("<think>a</think><action>down or up</action>", "up", True), ("<think>a</think><action>right, left, down</action>", "down", True),
    ("<think>a</think><action>still right of left</action>", "left", True), ("<think>a</think><action>still right</action>", "right", True),
    ("<think>a</think><action>support</action>", "up", True),                          # a part of a word
    ("<think>a</think><action>be still</action>", "still", True),
    ("<think>去</think><action>left</action>", "left", True),                          # no guard against other languages here
    ("<think>a</think><action>left</action><action>up</action>", "left", True),
    ("up", "invalid", False), ("", "invalid", False), ("<think>a</think><action>up", "invalid", False),
    # Where the order of the tags is stricter than the original's, which calls these valid:
    ("<action>up</action><think>a</think>", "up", False),                              # reasoning after the action
    ("<think>a<action>up</action></think>", "up", False),                              # action inside the reasoning
    ("</think>a<think><action>up</action>", "up", False),                              # reasoning reversed
    ("<think>a</think><action><action>up</action>", "up", False),                      # nested
    # The same as the original: a closing tag first leaves nothing between the tags.
    ("<think>a</think></action><action>up</action>", "invalid", False)])
def test_parser_table(text, action, valid):
    reply = read(text, tuple(MOVES))
    assert (reply.action, reply.valid, reply.admissible) == (action, valid, action in MOVES)


def test_parser_never_raises():
    rng, pieces = random.Random(0), ["<think>", "</think>", "<action>", "</action>", "<ACTION>", "up", "\n", "İ", "<", "still", ""]
    for _ in range(3000):
        reply = read("".join(rng.choice(pieces) for _ in range(rng.randint(0, 9))), tuple(MOVES))
        assert reply.action in IDS and reply.valid <= (reply.action != "invalid")


def test_two_boxes(tmp_path):
    """By hand: a box on (0.9), the other on (10.9, won); a box off again (-1.1); the target shows again under the player."""
    grid = ["######", "#PXO_#", "#_XO_#", "#____#", "######"]
    env = env_of(grid, tmp_path)
    assert "2 boxes" in env.reset(0, FIRST).description
    turns = [env.step(0, move) for move in ("right", "right", "left", "left", "down", "right")]
    assert [turn.reward for turn in turns] == pytest.approx([0.9, -1.1, -0.1, -0.1, -0.1, 0.9])
    assert not any(turn.won or turn.done for turn in turns)
    assert " S " in turns[1].observation and turns[1].observation.count("O") == 1 and turns[2].observation.count("O") == 2
    env.reset(0, FIRST)
    turns = [env.step(0, move) for move in ("right", "left", "down", "right")]
    assert turns[-1].reward == pytest.approx(10.9) and turns[-1].won and turns[-1].done and turns[-1].observation.count("√") == 2


def test_boxes_on_targets_at_the_start_are_counted(tmp_path):
    env = env_of(["######", "#PXO_#", "#__√_#", "#____#", "######"], tmp_path)
    env.reset(0, FIRST)
    turn = env.step(0, "right")
    assert turn.reward == pytest.approx(10.9) and turn.won


def test_what_is_no_move_changes_nothing_and_is_not_counted(tmp_path):
    env = env_of(["######", "#P_X_#", "#__O_#", "######"], tmp_path, max_steps=2)
    start = env.reset(0, FIRST)
    for action in ("still", "invalid", "Up", "", "jump") * 2:
        turn = env.step(0, action)
        assert (turn.observation, turn.reward, turn.done) == (start.observation, -0.1, False)
    assert not env.step(0, "left").done                      # a bump is a move
    assert env.step(0, "left").done and not env.step(0, "left").won


def test_slots_do_not_share_their_games(config):
    env = open_env(config)
    task = env.tasks("train")[0]
    a, b = env.reset(0, task), env.reset(1, task)
    assert a == b and env.slots == 6
    moved = [env.step(0, move).observation for move in MOVES]
    assert any(text != a.observation for text in moved) and env.step(1, "still").observation == b.observation


def test_made_levels_are_written_once(config, capsys):
    env = open_env(config)
    assert env.root.name == "sokoban-v1-6x6-1-12-6-5" and "making 23 levels" in capsys.readouterr().err
    half = env.root.with_name(env.root.name + ".1")
    half.mkdir()                                              # what a run left that was stopped: never taken for the levels
    stamp = (env.root / "train.xsb").stat().st_mtime_ns
    again = open_env(config)
    assert "made earlier" in capsys.readouterr().err and (again.root / "train.xsb").stat().st_mtime_ns == stamp
    assert again.splits() == ["train", "valid_seen", "valid_unseen"] and [len(again.tasks(s)) for s in again.splits()] == [12, 6, 5]
    ids = [task.id for split in again.splits() for task in again.tasks(split)]
    assert len(set(ids)) == 23 and all(again.tasks(s) == sorted(again.tasks(s), key=lambda t: t.id) for s in again.splits())


def test_types_are_those_of_the_skill_library(config):
    env, library = open_env(config), Library("sokoban")
    types = {task.type for split in env.splits() for task in env.tasks(split)}
    assert types == {"short", "middle", "long"} and types | {"unrated", "general"} == set(library.sections)
    for task in env.tasks("train"):
        assert library.skill(task)


def test_levels_of_ones_own(config, tmp_path, capsys):
    board = "#####\n#@$.#\n#####\n\n"
    for path, text in (("mine/train.xsb", board * 2), ("boxoban/train/000.txt", "; 0\n" + board), ("boxoban/train/001.txt", board),
                       ("boxoban/valid/000.txt", board), ("boxoban/test/000.txt", board + "; optimum 9\n" + board)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    config.data = str(tmp_path / "mine")
    env = open_env(config)
    assert capsys.readouterr().err == f"games: the levels in {tmp_path / 'mine'}\n"
    assert env.splits() == ["train"] and [t.id for t in env.tasks("train")] == ["train.xsb/00000", "train.xsb/00001"]
    with pytest.raises(UserError, match="no split valid_seen in .*, which has: train"):
        env.tasks("valid_seen")
    config.data = str(tmp_path / "boxoban")
    env = open_env(config)
    assert env.splits() == ["train", "valid_seen", "valid_unseen"]
    assert [t.id for t in env.tasks("train")] == ["train/000.txt/00000", "train/001.txt/00000"]
    assert [t.type for t in env.tasks("valid_unseen")] == ["unrated", "long"]
    assert env.reset(0, env.tasks("valid_unseen")[1]).observation.count("X") == 1
    config.data = str(tmp_path / "nowhere")
    with pytest.raises(UserError, match="has no levels: expected auto, made, or a folder"):
        open_env(config)


@pytest.mark.parametrize("shape", ["6x6", "6-1", "4x6-1", "6x6-9", "axb-c", "6x6x6-1", ""])
def test_shapes_that_cannot_be(shape, config):
    config.rooms = shape
    with pytest.raises(UserError, match="expected rows x columns - boxes"):
        open_env(config)
    config.rooms = "7x6-2"
    assert "7x6-2" in open_env(config).root.name


@pytest.mark.parametrize("id_", ["train.xsb/00099", "train.xsb/x", "nowhere.xsb/00000", "train.xsb"])
def test_a_task_that_is_not_there_is_named(id_, config):
    with pytest.raises(GameError, match=id_):
        open_env(config).reset(0, Task("sokoban", id_, "short"))


def test_two_processes_with_other_hash_seeds_make_the_same(tmp_path):
    code = ("import json, sys; from pathlib import Path; from types import SimpleNamespace; from seed.envs import sokoban\n"
            "sokoban.CACHE = Path(sys.argv[1])\n"
            "env = sokoban.open_env(SimpleNamespace(data='auto', train_games=20, seen_games=20, unseen_games=20, tasks_per_update=1,"
            " group_size=2, max_turns=15, rooms='6x6-1', vision=False))\n"
            "turns = [(t.id, t.type, env.reset(0, t).observation) for s in env.splits() for t in env.tasks(s)]\n"
            "print(json.dumps([turns, [(env.root / f'{s}.xsb').read_text() for s in env.splits()]]))")
    assert len(json.loads(same_in_two_processes(code, tmp_path / "1", tmp_path / "2"))[0]) == 60


# --- the picture

def seen(image):
    """The board that a picture shows, cell by cell."""
    tiles = {tile(symbol).tobytes(): symbol for symbol in "#_OX√PS"}
    assert len(tiles) == 7
    at = lambda r, c: tiles[image.crop((TILE * c, TILE * r, TILE * (c + 1), TILE * (r + 1))).tobytes()]
    return ["".join(at(r, c) for c in range(image.width // TILE)) for r in range(image.height // TILE)]


def test_the_picture_shows_the_board_and_the_text_does_not(config):
    text, config.vision = open_env(config), True
    vision, told = open_env(config), set()
    for task in vision.tasks("train"):
        plain, turn = text.reset(0, task), vision.reset(0, task)
        assert plain.images == () and plain.description.endswith(LEGEND) and turn.description.endswith(PICTURE)
        told.add((turn.observation, turn.description, turn.admissible))
        for move in (*MOVES, "still"):
            (image,) = turn.images
            assert image.size == (6 * TILE, 6 * TILE) and image.mode == "RGB" and board_text(seen(image)) == plain.observation
            plain, turn = text.step(0, move), vision.step(0, move)
            assert turn.observation == UNSEEN and (turn.reward, turn.done, turn.won) == (plain.reward, plain.done, plain.won)
    assert len(told) == 1      # every level has the same words


def test_all_seven_symbols_can_be_drawn():
    grid = ("######", "#PXO_#", "#√S__#", "######")
    assert seen(sokoban.picture(grid)) == list(grid) and sokoban.picture(grid) is sokoban.picture(tuple(grid))


# --- played by a policy

OPTIONS = dict(max_turns=4, history_length=2, temperature=1.0, max_prompt_tokens=4096, max_reply_tokens=8, batch_tokens=20_000)


def test_a_rollout_as_text(config):
    env = open_env(config)
    tasks = env.tasks("train")[:2]
    trajectories, crashed = rollout(random_policy(), env, [(t, g, c) for g, t in enumerate(tasks) for c in range(2)], "s", **OPTIONS)
    assert crashed == [] and len(trajectories) == 4
    assert trajectories[0].steps[0].context == trajectories[1].steps[0].context != trajectories[2].steps[0].context
    for t in trajectories:
        assert len(t.steps) == 4 and t.reward == pytest.approx(-0.4) and t.task.description.startswith("push the box onto the target.")
        prompt = render(t.steps[2].context)
        for part in (WORDS.head, t.task.description, t.steps[2].context.observation, "['up'\n 'down'\n 'left'\n 'right']",
                     WORDS.instruction[1:]):
            assert part in prompt
        assert f"[Observation 1: '{t.steps[0].context.observation}', Action 1: '{t.steps[0].action}']" in prompt
        analysis, _ = analyzer_prompt(t)
        assert analysis.startswith(WORDS.analysis) and t.steps[-1].observation_after in analysis and "failure" in analysis


def test_a_rollout_with_pictures_keeps_them_in_the_context(config, seeing_policy):
    config.vision = True
    env = open_env(config)
    (trajectory,), _ = rollout(seeing_policy, env, [(env.tasks("train")[0], 0, 0)], "s", **OPTIONS)
    for step in trajectory.steps:
        (image,) = step.context.images
        assert image.size == (336, 336)
        taught = H(step.context, "Push it up.")
        assert taught.images is step.context.images and taught.skill == "Push it up."
        assert not set("X√\t") & set(render(step.context)) and UNSEEN in render(step.context)
