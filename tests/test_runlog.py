"""seed/runlog.py: whole checkpoints, files cut back to them, settings that must agree."""
import hashlib
import json

import pytest
import torch
from fakes import random_policy

from seed import runlog
from seed.config import Config, make_config
from seed.errors import UserError
from seed.evaluation import wilson
from seed.runlog import RunLog, append_line, config_hash, read_lines


@pytest.fixture
def run(tmp_path):
    return RunLog.create(make_config({"preset": "tiny", "out": str(tmp_path / "run"), "seed": 5}), {"games": "abc"})


def parts():
    policy = random_policy(width=64, layers=1)
    return policy, torch.optim.AdamW(policy.trainable(), lr=0.01)


def test_the_record_of_a_run(run):
    record = run.facts()
    assert record["config"]["seed"] == 5 and record["games"] == "abc" and {"torch", "alfworld", "textworld"} <= set(record["versions"])
    assert "commit" in record and "command" in record


def test_a_folder_that_exists_is_not_written_over(run):
    with pytest.raises(UserError, match="add --resume to go on with it as it was, or give another --out"):
        RunLog.create(make_config({"preset": "tiny", "out": str(run.folder)}), {})
    (run.folder.parent / "a file").write_text("x")
    with pytest.raises(UserError, match="a file exists"):
        RunLog.create(make_config({"preset": "tiny", "out": str(run.folder.parent / "a file")}), {})


def test_the_hash_of_a_configuration_names_what_differs_from_the_defaults():
    a = make_config({"preset": "tiny"})
    same, other = make_config({"preset": "tiny", "out": "elsewhere", "resume": True}), make_config({"preset": "tiny", "gate_beta": 1.0})
    assert config_hash(a) == config_hash(same) != config_hash(other)
    assert config_hash(Config()) == config_hash(Config(out="x")) == hashlib.sha256(b"{}").hexdigest()[:12]   # no defaults in it


def test_settings_must_agree(run):
    reopen = lambda **given: RunLog.reopen(make_config({"preset": "tiny", "out": str(run.folder), **given}), {"out", *given})
    _, config = reopen()
    assert config.seed == 5
    assert reopen(updates=99)[1].updates == 99 and reopen()[1].updates == 99 and reopen(seed=5)[1].seed == 5
    with pytest.raises(UserError, match=r"other settings: --group-size 4 \(was 8\), --seed 1 \(was 5\)"):
        reopen(seed=1, group_size=4)
    with pytest.raises(UserError, match=r"--preset qwen2.5-3b \(was tiny\)"):
        reopen(preset="qwen2.5-3b")
    with pytest.raises(UserError, match="is no run folder"):
        RunLog.reopen(make_config({"preset": "tiny", "out": str(run.folder / "x")}), set())


def test_restore_cuts_the_files_back(run):
    policy, optimizer = parts()
    run.write("metrics.jsonl", '{"update": 1}')
    run.save(1, policy, optimizer)
    run.write("metrics.jsonl", '{"update": 2}')
    run.write("trajectories.jsonl", "{}")
    mark = policy.fingerprint()
    with torch.no_grad():
        policy.trainable()[0].add_(1.0)
    assert run.restore(policy, optimizer) == 1 and policy.fingerprint() == mark
    assert run.read("metrics.jsonl") == [{"update": 1}] and run.read("trajectories.jsonl") == []


def test_a_half_written_checkpoint_is_never_taken(run, monkeypatch):
    policy, optimizer = parts()
    run.save(1, policy, optimizer)

    def full_disk(*args):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(runlog.torch, "save", full_disk)
    with pytest.raises(OSError):
        run.save(2, policy, optimizer)
    assert run.checkpoints() == [1]


def test_old_checkpoints_go_except_the_best(run):
    policy, optimizer = parts()
    for update in (1, 2, 3, 4):
        run.write("evaluations.jsonl", json.dumps({"update": update, "with_skills": False, "success": float(update == 2)}))
        run.save(update, policy, optimizer)
    assert run.checkpoints() == [2, 4]


def test_without_a_checkpoint_the_run_begins_again(run):
    run.write("metrics.jsonl", '{"update": 1}')
    assert run.restore(*parts()) == 0 and run.read("metrics.jsonl") == []


def test_best_is_the_first_of_equals_and_says_how_often_it_looked(run):
    for update, success in ((0, 0.1), (5, 0.5), (10, 0.5), (15, 0.4)):
        run.write("evaluations.jsonl", json.dumps({"update": update, "with_skills": False, "split": "valid_seen", "success": success}))
    assert run.best() == (5, 4)


def test_lines_cut_off_are_dropped(tmp_path):
    path = tmp_path / "x.jsonl"
    assert read_lines(path) == []
    append_line(path, "a")
    append_line(path, "b é\u2028\x85c")
    with open(path, "a") as file:
        file.write("half")
    assert read_lines(path) == ["a", "b é\u2028\x85c"] and path.read_text().endswith("half")   # reading changes nothing,
    append_line(path, "d")
    assert path.read_text() == "a\nb é\u2028\x85c\nd\n"                                        # writing takes it out
    path.write_bytes("é".encode()[:1])
    append_line(path, "e")
    assert path.read_text() == "e\n"


def test_curves_are_drawn(run):
    for update in (1, 2):
        run.write("metrics.jsonl", json.dumps({"update": update, "success": 0.1, "turns": 3, "opd_loss": 0.1, "gate_mean": 0.5,
                                               "gate_open": 0.4, "entropy": 1.0, "kl": 0.0}))
    run.write("evaluations.jsonl", json.dumps({"update": 0, "with_skills": False, "split": "valid_seen", "success": 1.0,
                                            **dict(zip(("low", "high"), wilson(128, 128)))}))
    run.draw()
    assert (run.folder / "curves.png").stat().st_size > 10_000
