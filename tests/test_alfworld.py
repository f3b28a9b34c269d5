"""seed/envs/alfworld.py on made games, on real ones of both grammars, and on damaged ones."""
import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, SHARED, shared

from seed.envs.alfworld import AlfWorld, Planner, downloaded_data
from seed.envs.base import GameError
from seed.errors import UserError


def first_texts(root, hash_seed, groundings, split="train", number=6):
    """First observation and commands of the first games of a split, in a process of its own."""
    code = ("import json, sys; from pathlib import Path; from seed.envs.alfworld import AlfWorld\n"
            f"env = AlfWorld(Path({str(root)!r}), 1, None); tasks = env.tasks({split!r})\n"
            f"turns = [env.reset(0, t) for t in tasks[:{number}]]\n"
            "print(json.dumps([[t.id for t in tasks], [(t.observation, t.admissible) for t in turns]]))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                         env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": str(hash_seed), "HOME": "/tmp"})
    assert out.returncode == 0, out.stderr[-2000:]
    return json.loads(out.stdout)


def test_two_processes_with_other_hash_seeds_see_the_same(games, groundings):
    assert first_texts(games, 1, groundings) == first_texts(games, 2, groundings)


def test_real_games_do_not_depend_on_the_hash_seed(groundings):
    root = shared("alfworld")
    assert first_texts(root, 1, groundings, number=2) == first_texts(root, 2, groundings, number=2)


def test_tasks_are_sorted_and_of_the_six_types(env):
    tasks = env.tasks("train")
    assert [t.id for t in tasks] == sorted({t.id for t in tasks}) and len(tasks) == 18
    assert {t.type for t in tasks} == {"pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep",
                                       "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place"}
    assert all(t.id.startswith("json_2.1.1/train/") for t in tasks)


def test_movable_sliced_and_unknown_tasks_are_left_out(games, groundings, tmp_path):
    source = next((games / "json_2.1.1" / "train").glob("pick_and_place_simple*"))
    for name in ("pick_and_place_simple-AppleSliced-None-Desk-1", "pick_and_place_with_movable_recep-Mug-Bowl-Desk-1",
                 "open_the_pod_bay_doors-A-None-B-1", "pick_and_place_simple-Mug-None-Desk-1"):
        shutil.copytree(source, tmp_path / "json_2.1.1" / "train" / name)
    tasks = AlfWorld(tmp_path, 1, groundings).tasks("train")
    assert [t.id.split("/")[2] for t in tasks] == ["pick_and_place_simple-Mug-None-Desk-1"]


def play_plan(env, task, plan):
    turn = env.reset(0, task)
    assert turn.description and turn.description in turn.observation
    for command in plan:
        assert command in turn.admissible and not turn.done
        turn = env.step(0, command)
    return turn


def test_every_made_game_is_won_by_its_plan_with_reward_10(env, games):
    for split in env.splits():
        for task in env.tasks(split):
            plan = json.loads((games / task.id / "game.tw-pddl").read_text())["walkthrough"]
            turn = play_plan(env, task, plan)
            assert turn.won and turn.done and turn.reward == 10.0, task.id


@pytest.mark.parametrize("folder, verb", [("alfworld", "move "), ("alfworld_old_grammar", "put ")])
def test_real_games_of_both_grammars_are_won_by_the_planner(folder, verb, groundings):
    root = shared(folder)
    env, planner = AlfWorld(root, 1, groundings), Planner(groundings)
    split = env.splits()[0]
    tasks = {t.type: t for t in env.tasks(split)}
    for kind in ("pick_and_place_simple", "pick_clean_then_place_in_recep"):
        plan = planner.plan(root / tasks[kind].id / "game.tw-pddl")
        assert plan[-1].startswith(verb)
        assert play_plan(env, tasks[kind], plan).won


def test_an_inadmissible_action_changes_nothing(env):
    task = env.tasks("train")[0]
    start = env.reset(0, task)
    for action in ("fly to the moon", "help", "", "take", "go to nowhere 1"):
        turn = env.step(0, action)
        assert (turn.observation, turn.admissible, turn.done, turn.reward) == ("Nothing happens.", start.admissible, False, 0.0)
    real = env.step(0, start.admissible[0])
    other = AlfWorld(env.root, 1, None)
    other.reset(0, task)
    assert other.step(0, start.admissible[0]) == real


def test_slots_do_not_disturb_each_other(env):
    a, b = env.tasks("train")[:2]
    env.reset(0, a), env.reset(1, b)
    mixed = [(env.step(0, x), env.step(1, y)) for x, y in [("look", "inventory"), (env.turns[0].admissible[0], env.turns[1].admissible[0])]]
    env.reset(2, b)
    alone = [env.step(2, y) for y in ("inventory", env.turns[1].admissible[0])]
    assert mixed[0][1] == alone[0] and mixed[0][0] != mixed[0][1]


def test_a_group_starts_from_the_same_text(env):
    task = env.tasks("train")[3]
    assert len({env.reset(slot, task) for slot in range(4)} | {env.reset(0, task)}) == 1


@pytest.mark.parametrize("damage", [
    lambda text: text[: len(text) // 2],
    lambda text: "",
    lambda text: text.replace('"pddl_problem"', '"problem"'),
    lambda text: json.dumps({**json.loads(text), "solvable": False}),
    lambda text: json.dumps({**json.loads(text), "pddl_problem": "(define (problem x) (:domain alfred))"}),
    lambda text: json.dumps({**json.loads(text), "grammar": "action look {"}),
    lambda text: json.dumps([1, 2]),
])
def test_a_damaged_game_is_named_and_others_still_play(games, groundings, tmp_path, damage):
    shutil.copytree(games, tmp_path / "data")
    env = AlfWorld(tmp_path / "data", 2, groundings)
    bad, good = env.tasks("train")[:2]
    file = env.root / bad.id / "game.tw-pddl"
    file.write_text(damage(file.read_text()))
    with pytest.raises(GameError, match=bad.id.split("/")[2]):
        env.reset(0, bad)
    assert good.type in good.id and env.reset(0, good).admissible


def test_a_crash_while_playing_is_named(env, monkeypatch):
    task = env.tasks("train")[0]
    turn = env.reset(0, task)

    def crash(command):
        raise RuntimeError("planner gone")
    monkeypatch.setattr(env.engines[0], "step", crash)
    with pytest.raises(GameError, match=f"{task.id}: RuntimeError: planner gone"):
        env.step(0, turn.admissible[0])
    assert env.reset(0, task) == turn   # the slot has a new engine


def test_missing_folders(games, groundings, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no split valid_seen"):
        AlfWorld(tmp_path, 1, None).tasks("valid_seen")
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="no games in"):
        AlfWorld(tmp_path, 1, None).tasks("train")
    monkeypatch.setattr("seed.envs.alfworld.STATED_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="ALFWORLD_DATA is .*nowhere"):
        downloaded_data()


def test_real_data_has_the_published_layout(groundings):
    env = AlfWorld(shared("alfworld"), 1, groundings)
    assert len(env.tasks("train")) == 54 and len(env.tasks("valid_unseen")) == 42 and env.splits() == ["train", "valid_unseen"]
    assert SHARED.name
