"""seed/distributed.py: two processes make the update that one process makes."""
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT

from seed import distributed

OPTIONS = ["--preset", "tiny", "--init", "base", "--method", "seed", "--tasks-per-update", "3", "--group-size", "4", "--max-turns", "5",
           "--gradients-every", "1", "--eval-episodes", "6", "--updates", "1", "--minibatches", "1"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_process_gives_back_what_it_was_given():
    items, tensors = [1, 2], [torch.ones(2)]
    distributed.add_up(tensors)
    assert distributed.gather(items) == items and distributed.rank() == 0 and distributed.world() == 1
    assert torch.equal(tensors[0], torch.ones(2)) and dict(distributed.add_up_by_name({"a": 2.0})) == {"a": 2.0}
    assert distributed.first_alone(lambda: "x") == "x"


def test_two_processes_make_the_update_of_one(games, tmp_path):
    start = [sys.executable], [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517"]
    for name, python in zip(("one", "two"), start):
        done = subprocess.run([*python, "train_seed.py", *OPTIONS, "--data", str(games), "--out", str(tmp_path / name)], cwd=ROOT,
                              capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = tmp_path / "one", tmp_path / "two"
    what = lambda folder: [[(t["task"]["id"], t["group"], t["copy"], t["skill"])] + [(s["observation"], s["action_ids"]) for s in t["steps"]]
                           for t in lines(folder / "trajectories.jsonl")]
    assert what(one) == what(two) and len(what(one)) == 12
    (a,), (b,) = lines(one / "metrics.jsonl"), lines(two / "metrics.jsonl")
    assert set(a) == set(b)
    for name, value in a.items():
        if isinstance(value, float) and name != "peak_memory_gb":
            assert b[name] == pytest.approx(value, rel=1e-3, abs=1e-6), name
    assert (a["tokens"], a["prompt_tokens"], a["success"]) == (b["tokens"], b["prompt_tokens"], b["success"]) and a["grad_norm"] > 0
    assert [e["outcomes"] for e in lines(one / "evaluations.jsonl")][0] == [e["outcomes"] for e in lines(two / "evaluations.jsonl")][0]
    # The first moment after one step is a tenth of the gradient.
    moments = [torch.load(folder / "checkpoints/update-1/optimizer.pt")["state"] for folder in (one, two)]
    for i in moments[0]:
        x, y = (state[i]["exp_avg"] for state in moments)
        assert (x - y).abs().max() <= 1e-4 * x.abs().max() + 1e-9


def test_no_thread_of_the_group_is_left_when_it_has_ended():
    # A group of one, as torchrun would announce it; `start` joins groups of several only, so it is told that there are two.
    program = '''
import os
import torch.distributed as dist
from seed import distributed
from seed.config import parse
from seed.policy import load_policy
threads = lambda: [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
join = dist.init_process_group
dist.init_process_group = lambda backend, timeout: join("gloo", timeout=timeout, store=dist.HashStore(), rank=0, world_size=1)
distributed.start()
load_policy(parse("", arguments=["--preset", "tiny"])[0], None)
print(any("gloo" in name for name in threads()))
distributed.stop()
print(any("gloo" in name for name in threads()))
'''
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
    assert done.stdout.split() == ["True", "False"], done.stderr[-2000:]


def test_more_processes_than_tasks_is_an_error(games, tmp_path, monkeypatch, capsys):
    import train_seed
    monkeypatch.setattr(distributed, "world", lambda: 3)
    monkeypatch.setattr(sys, "argv", ["train_seed.py", *OPTIONS, "--tasks-per-update", "2", "--data", str(games), "--out", str(tmp_path / "x")])
    with pytest.raises(SystemExit) as stop:
        train_seed.main()
    assert stop.value.code == 2 and "--tasks-per-update 2 for 3 processes: expected at least one task each" in capsys.readouterr().err
