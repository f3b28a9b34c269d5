"""seed/envs/fast_textworld.py: the same characters as stock TextWorld, and a cache that survives damage."""
import gzip
import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, shared

from seed.envs.alfworld import AlfWorld
from seed.envs.fast_textworld import Groundings


@pytest.mark.parametrize("source, number, steps", [("made", 6, 10), ("alfworld", 2, 12), ("alfworld_old_grammar", 1, 12)])
def test_equal_to_stock(source, number, steps, games):
    """The bench plays both engines side by side and counts differing states; it must find none. (Speed is its own matter.)"""
    root = games if source == "made" else shared(source)
    out = subprocess.run([sys.executable, "bench/alfworld_engine.py", "--games", str(root), "--number", str(number),
                          "--steps", str(steps)], cwd=ROOT, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr[-2000:]
    assert f"{number} games, {number * (steps + 2)} states, 0 differences" in out.stdout
    assert json.loads(out.stdout.splitlines()[-1])["differences"] == 0


def test_the_bench_would_see_a_difference(games, monkeypatch, capsys):
    sys.path.insert(0, str(ROOT / "bench"))
    import alfworld_engine
    program = ("import json, sys\nfor line in sys.stdin:\n"
               "    print(json.dumps({'times': {'load': 1, 'reset': 1, 'step': 1}, 'states': [['a'], [sys.argv[-1]]]}), flush=True)")
    popen = subprocess.Popen
    monkeypatch.setattr(alfworld_engine.subprocess, "Popen",
                        lambda command, **options: popen([sys.executable, "-c", program, command[-1]], **options))
    alfworld_engine.compare([games / "json_2.1.1/train/a/b/game.tw-pddl"], 1)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["differences"] == 1


def transcript(env, task, steps=12):
    import random
    rng, turn = random.Random(0), env.reset(0, task)
    seen = [turn]
    for _ in range(steps):
        turn = env.step(0, rng.choice(turn.admissible))
        seen.append(turn)
    return seen


def test_a_cached_grounding_plays_the_same(games, tmp_path):
    """In processes of their own, since the patch is applied once per process: cold, warm, and with a damaged cache."""
    code = ("import sys; sys.path[:0] = ['tests', '.']; from pathlib import Path; from test_fast_textworld import transcript\n"
            "from seed.envs.alfworld import AlfWorld\n"
            f"env = AlfWorld(Path({str(games)!r}), 1, Path({str(tmp_path / 'cache')!r}))\n"
            "print(hash(tuple(map(repr, transcript(env, env.tasks('train')[4])))))")
    run = lambda: subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                                 env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "HOME": "/tmp"}, check=True).stdout
    cold = run()
    (file,) = (tmp_path / "cache").glob("*.json.gz")
    whole = file.read_bytes()
    assert run() == cold and file.read_bytes() == whole
    for damage in (whole[: len(whole) // 2], b"", b"not gzip", gzip.compress(b"[]"), gzip.compress(b'{"types": 3}')):
        file.write_bytes(damage)
        assert run() == cold and file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")                     # a file where the folder should be
    cache = Groundings(blocked / "below")
    monkeypatch.setattr(Groundings, "encode", staticmethod(lambda task, sas: {}))
    assert cache.wrap(lambda domain, problem: ("task", "sas"))("d", "p") == ("task", "sas")


def test_the_command_line_survives_grounding(games, tmp_path):
    shutil.copytree(games, tmp_path / "data")
    before = list(sys.argv)
    env = AlfWorld(tmp_path / "data", 1, None)
    env.reset(0, env.tasks("train")[0])
    assert sys.argv == before
