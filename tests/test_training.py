"""The three scripts, run for real on a few made games: two updates of each method, resuming, bad input, evaluation."""
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from conftest import ROOT, shared

import eval as eval_script
import export
import train_seed
import train_sft
from seed import runlog, update
from seed.config import make_config
from seed.library import Library
from seed.losses import opd_loss, rlsd_advantages
from seed.methods import METHODS

SMALL = ["--preset", "tiny", "--tasks-per-update", "2", "--group-size", "4", "--max-turns", "6", "--gradients-every", "2", "--minibatches", "1"]


def run(main, *arguments):
    """A script's main function in this process; returns its exit code."""
    before, sys.argv = sys.argv, ["script", *map(str, arguments)]
    try:
        main()
        return 0
    except SystemExit as stop:
        return stop.code
    finally:
        sys.argv = before


@pytest.fixture(scope="module")
def sft(games, tmp_path_factory):
    out = tmp_path_factory.mktemp("stage1") / "sft"
    assert run(train_sft.main, "--preset", "tiny", "--data", games, "--tasks", 4, "--rollouts", 3, "--epochs", 2, "--max-turns", 6,
               "--out", out) == 0
    return out


@pytest.fixture
def train(games, sft, tmp_path):
    """Train in a folder below tmp_path; returns the exit code."""
    return lambda name, *extra: run(train_seed.main, *SMALL, "--data", games, "--init", sft / "policy", "--out", tmp_path / name, *extra)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_stage_1_keeps_a_record(sft):
    report = json.loads((sft / "sft.json").read_text())
    data = lines(sft / "sft.jsonl")
    assert report["trajectories"] == 12 and report["kept"] == len(data) == 12 and len(report["data_hash"]) == 12
    assert report["loss_by_epoch"][1] < report["loss_by_epoch"][0]
    assert all(set(json.loads(row["answer"])) == {"episode_summary", "episode_skill"} for row in data)
    assert all("episode_success" in row["prompt"] for row in data)


def test_stage_1_trains_on_the_answer_alone(sft, monkeypatch):
    """The fine-tuning's rows: prompt ids without loss, answer ids with it, one end token."""
    from seed.policy import load_policy
    seen = []
    score = train_sft.action_logprobs
    monkeypatch.setattr(train_sft, "action_logprobs", lambda policy, rows: seen.extend(rows) or score(policy, rows))
    policy = load_policy(make_config({"preset": "tiny"}))
    train_sft.fine_tune(make_config({"preset": "tiny", "sft_epochs": 1}), policy, [(("Analyse.", ()), '{"a": "b"}')])
    ((prompt, answer),) = seen
    assert prompt == policy.encode("Analyse.") and policy.decode(answer) == '{"a": "b"}' and answer[-1] in policy.end_ids


def test_stage_1_goes_on_where_it_was(games, tmp_path, monkeypatch):
    arguments = ["--preset", "tiny", "--data", games, "--tasks", 3, "--rollouts", 2, "--epochs", 1, "--max-turns", 4, "--out", tmp_path / "s"]
    monkeypatch.setattr(train_sft, "annotate", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert run(train_sft.main, *arguments) == 130
    played = (tmp_path / "s" / "trajectories.jsonl").read_text()
    assert len(played.splitlines()) == 6
    monkeypatch.undo()
    assert run(train_sft.main, *arguments) == 2                       # exists, and --resume was not said
    monkeypatch.setattr(train_sft, "rollout", lambda *a, **k: pytest.fail("played again") if a[2] else ([], []))
    assert run(train_sft.main, *arguments, "--resume") == 0
    assert (tmp_path / "s" / "trajectories.jsonl").read_text() == played and (tmp_path / "s" / "policy" / "policy.json").exists()


def test_stage_1_without_a_usable_skill_says_so(games, tmp_path, capsys):
    code = run(train_sft.main, "--preset", "tiny", "--data", games, "--tasks", 1, "--rollouts", 2, "--max-turns", 3, "--annotator", "policy",
               "--skill-tokens", 3, "--out", tmp_path / "s")
    error = capsys.readouterr().err
    assert code == 2 and "none of 2 annotations is a well-formed skill" in error and "cut off" in error


@pytest.mark.parametrize("method", ["grpo", "seed"])
def test_two_updates_of_every_method(train, tmp_path, method):
    assert train(method, "--method", method, "--updates", 2, "--gradients-every", 1) == 0
    metrics, evaluations = lines(tmp_path / method / "metrics.jsonl"), lines(tmp_path / method / "evaluations.jsonl")
    assert [m["update"] for m in metrics] == [1, 2] and [e["update"] for e in evaluations] == [0, 2]
    assert metrics[0]["weights"] != metrics[1]["weights"] and metrics[0]["kl"] == 0.0 and metrics[1]["kl"] > 0
    assert metrics[0]["clipped"] == 0 and set(metrics[0]["seconds"]) == {"rollout", "analysis", "scoring", "learning"}
    assert len(lines(tmp_path / method / "trajectories.jsonl")) == 16 and (tmp_path / method / "curves.png").exists()
    if method == "seed":
        m = metrics[0]
        assert m["skill_valid"] > 0.5 and m["delta_abs"] > 0.01 and m["gate_mean"] != 0.5 and m["opd_loss"] != 0
        # Where every game of this small update was lost, GRPO has no gradient to compare with; from the second on there is the KL's.
        assert (m["gradient_ratio"] is None) == (m["equal_groups"] == 1) and metrics[1]["gradient_ratio"] > 0
        skills = [t["skill"] for t in lines(tmp_path / method / "trajectories.jsonl")]
        assert sum(s is not None for s in skills) >= 8
    else:
        assert not any(name in metrics[0] for name in ("opd_loss", "gate_mean", "skill_valid"))
    assert all(t["steps"][0]["acted_with_skill"] is None for t in lines(tmp_path / method / "trajectories.jsonl"))


@pytest.mark.parametrize("method", sorted(name for name, m in METHODS.items() if m.trains and name not in ("grpo", "seed")))
def test_an_update_of_every_other_method(train, tmp_path, method):
    what = METHODS[method]
    assert train("a", "--method", method, "--updates", 1, "--opd-coef", 1, "--gradients-every", 1, "--seed", 5, "--eval-episodes", 2) == 0
    (m,), played = lines(tmp_path / "a" / "metrics.jsonl"), lines(tmp_path / "a" / "trajectories.jsonl")
    skills = {t["steps"][0]["acted_with_skill"] for t in played}
    assert all("Look into places" in skill for skill in skills) if what.acts_with else skills == {None}
    assert [(e["update"], e["with_skills"]) for e in lines(tmp_path / "a" / "evaluations.jsonl")] == (
        [(0, False), (0, True), (1, False), (1, True)] if what.acts_with else [(0, False), (1, False)])
    assert what.reward == (m["kl"] == 0.0) and m["grad_norm"] > 0
    if what.teacher:
        assert m["skill_hit"] == m["taught_tokens"] == 1 and m["delta_abs"] > 0.01 and m["gate_mean"] is None or what.loss is opd_loss
        assert (m["opd_loss"] is None) == (what.loss is None) and (m["skill_valid"] is None) == (what.teacher == "library")
        taught = {t["task"]["id"]: {s["taught"] for s in played if s["task"] == t["task"]} for t in played}
        if what.teacher in ("library", "grown"):                 # a library's skill is the task's, not the trajectory's
            assert all(len(seen) == 1 for seen in taught.values())
        elif what.teacher == "other":                           # two groups of four: that of the other group's episode
            assert [t["taught"] for t in played] == [t["skill"] for t in played[4:] + played[:4]] != [t["skill"] for t in played]
        else:
            assert all(t["taught"] == t["skill"] for t in played) and any(len(seen) > 1 for seen in taught.values())
            assert any(char.isdigit() for t in played for char in t["skill"]) == (what.teacher == "expert")   # places have numbers


def test_a_grown_library_is_saved_and_resumes_bitwise(train, tmp_path):
    options = ["--method", "skill-sd", "--tasks-per-update", 3, "--opd-coef", 0.5]
    assert train("whole", *options, "--updates", 2) == 0 and train("parts", *options, "--updates", 1) == 0
    first = json.loads((tmp_path / "parts/checkpoints/update-1/library.json").read_text())
    assert run(train_seed.main, "--resume", "--out", tmp_path / "parts", "--updates", 2) == 0
    assert comparable(tmp_path / "whole") == comparable(tmp_path / "parts")
    grown = (tmp_path / "whole/checkpoints/update-2/library.json").read_text()
    assert grown == (tmp_path / "parts/checkpoints/update-2/library.json").read_text() and set(first) < set(json.loads(grown))


def test_rlsd_without_a_teacher_for_a_row_is_grpo_there(train, tmp_path, monkeypatch):
    options = ["--updates", 1, "--seed", 5, "--eval-episodes", 2]  # with this seed a game is won
    assert train("a", "--method", "grpo", *options) == 0 and train("b", "--method", "rlsd", *options) == 0
    weights = lambda name: lines(tmp_path / name / "metrics.jsonl")[0]["weights"]
    assert weights("a") != weights("b")
    monkeypatch.setitem(METHODS, "rlsd", replace(METHODS["rlsd"], credit=lambda a, l, t, m: rlsd_advantages(a, l, t, m & False)))
    assert train("c", "--method", "rlsd", *options) == 0 and weights("c") == weights("a")


def test_methods_that_train_nothing_are_evaluations(train, tmp_path, capsys):
    for name, skills in (("vanilla", [False]), ("skill-prompt", [False, True])):
        assert train(name, "--method", name) == 0 and f"{name} trains nothing" in capsys.readouterr().err
        assert [e["with_skills"] for e in lines(tmp_path / name / "evaluations.jsonl")] == skills
        assert not (tmp_path / name / "metrics.jsonl").exists()
    with_skills = lines(tmp_path / "skill-prompt" / "evaluations.jsonl")[1]
    assert run(eval_script.main, "--run", tmp_path / "vanilla", "--with-skills", "--json", tmp_path / "e.json") == 0
    assert json.loads((tmp_path / "e.json").read_text())["evaluations"][0]["outcomes"] == with_skills["outcomes"]


def test_a_library_without_the_tasks_types_stops(train, monkeypatch, capsys):
    monkeypatch.setattr(Library, "skill", lambda self, task: None)
    assert train("a", "--method", "sdar", "--updates", 1) == 2 and "skill library has nothing for the tasks" in capsys.readouterr().err


def test_a_fraction_of_the_training_tasks(train, tmp_path):
    from fakes import trajectory
    task = trajectory().task
    env = type("Env", (), {"tasks": lambda self, split: [replace(task, id=f"{i:02d}") for i in range(10)]})()
    part = lambda fraction: [t.id for t in train_seed.training_tasks(make_config({"preset": "tiny", "train_fraction": fraction}), env)]
    assert len(part(0.2)) == 2 and set(part(0.2)) < set(part(0.6)) < set(part(1.0)) and part(0.6) == sorted(part(0.6))


def test_several_steps_an_update_move_away_from_pi_old(train, tmp_path):
    """The first step's ratios are 1; the later ones' are not, and the reference is left within the update."""
    assert train("one", "--method", "seed", "--updates", 1, "--learning-rate", 1e-3) == 0
    assert train("four", "--method", "seed", "--updates", 1, "--learning-rate", 1e-3, "--minibatches", 4) == 0
    (one,), (four,) = (lines(tmp_path / name / "metrics.jsonl") for name in ("one", "four"))
    assert one["clipped"] == one["kl"] == 0 and four["clipped"] > 0 and four["kl"] > 0
    assert one["tokens"] == four["tokens"] and one["success"] == four["success"] and four["sampling_gap"] < 1e-5
    assert one["weights"] != four["weights"] and len(lines(tmp_path / "one" / "trajectories.jsonl")) == 8


@pytest.mark.parametrize("extra", [[], ["--quantize", "--gradient-checkpointing"]])
def test_lora_takes_the_same_path_and_resumes_bitwise(train, tmp_path, capsys, extra):
    lora = ["--init", "base", "--lora-rank", 4, "--learning-rate", 1e-3, *extra]
    assert train("whole", *lora, "--updates", 2) == 0 and train("parts", *lora, "--updates", 1) == 0
    assert run(train_seed.main, "--resume", "--out", tmp_path / "parts", "--updates", 2) == 0
    assert comparable(tmp_path / "whole") == comparable(tmp_path / "parts")
    metrics = lines(tmp_path / "whole" / "metrics.jsonl")
    assert metrics[0]["kl"] == 0.0 < metrics[1]["kl"] and (tmp_path / "whole/checkpoints/update-2/policy/adapter_model.safetensors").exists()
    assert run(eval_script.main, "--run", tmp_path / "whole", "--episodes", 2) == 0
    # Exported: one plain model in bfloat16. Of 4-bit training it differs by the rounding of the weights.
    assert run(export.main, "--run", tmp_path / "whole", "--out", tmp_path / "served") == 0
    gap = float(capsys.readouterr().err.split("differ from the trained policy's by ")[1].split()[0])
    assert 0 < gap < (0.5 if extra else 0.05) and not (tmp_path / "served/adapter_config.json").exists()
    assert run(export.main, "--run", tmp_path / "whole", "--out", tmp_path / "served") == 2


def test_without_distillation_seed_is_grpo(train, tmp_path):
    assert train("a", "--method", "seed", "--opd-coef", 0, "--updates", 1) == 0 and train("b", "--method", "grpo", "--updates", 1) == 0
    a, b = (lines(tmp_path / name / "metrics.jsonl")[0] for name in "ab")
    assert a["weights"] == b["weights"] and a["opd_loss"] != 0
    assert train("c", "--method", "seed", "--opd-coef", 1, "--updates", 1) == 0
    assert lines(tmp_path / "c" / "metrics.jsonl")[0]["weights"] != a["weights"]


def comparable(folder):
    drop = ("seconds", "peak_memory_gb")
    return ([{k: v for k, v in m.items() if k not in drop} for m in lines(folder / "metrics.jsonl")],
            (folder / "trajectories.jsonl").read_text())


@pytest.mark.parametrize("extra", [[], ["--minibatches", "3"]])
def test_four_updates_are_two_and_resume_and_two_bitwise(train, tmp_path, extra):
    assert train("whole", "--updates", 4, *extra) == 0
    assert train("parts", "--updates", 2, *extra) == 0
    assert run(train_seed.main, "--resume", "--out", tmp_path / "parts", "--updates", 4) == 0
    assert comparable(tmp_path / "whole") == comparable(tmp_path / "parts")
    a, b = (torch.load(tmp_path / name / "checkpoints/update-4/optimizer.pt") for name in ("whole", "parts"))
    assert all(torch.equal(a["state"][i]["exp_avg"], b["state"][i]["exp_avg"]) for i in a["state"])


def test_an_interrupted_update_leaves_no_trace(train, tmp_path, monkeypatch):
    assert train("whole", "--updates", 3) == 0
    real, calls = update.analyze, []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **options)
    monkeypatch.setattr(update, "analyze", interrupted)
    assert train("parts", "--updates", 3) == 130
    monkeypatch.undo()
    runlog.append_line(tmp_path / "parts" / "metrics.jsonl", '{"update": 3, "half": ')
    assert run(train_seed.main, "--resume", "--out", tmp_path / "parts") == 0
    assert comparable(tmp_path / "whole") == comparable(tmp_path / "parts")


def test_interrupted_before_the_first_update(train, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train_seed, "run_evaluation", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert train("a", "--updates", 1) == 130
    assert capsys.readouterr().err.endswith(f"to go on, type: python train_seed.py --resume --out {tmp_path / 'a'}\n")
    monkeypatch.undo()
    assert run(train_seed.main, "--resume", "--out", tmp_path / "a") == 0
    assert [e["update"] for e in lines(tmp_path / "a" / "evaluations.jsonl")] == [0, 1]
    assert f"going on with {tmp_path / 'a'} after update 0" in capsys.readouterr().err
    assert run(train_seed.main, "--resume", "--out", tmp_path / "a") == 2 and "has all its 1 updates" in capsys.readouterr().err
    assert run(eval_script.main, "--run", tmp_path / "a" / "metrics.jsonl") == 2
    assert f"It is a part of {tmp_path / 'a'}: give that" in capsys.readouterr().err


def test_a_folder_in_the_way_is_told_before_anything_is_made(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("x")
    monkeypatch.setattr(train_seed, "open_env", lambda *a: pytest.fail("games were opened"))
    assert run(train_seed.main, "--preset", "tiny", "--out", tmp_path / "a") == 2


def test_resume_with_other_settings_is_refused(train, tmp_path, capsys):
    assert train("a", "--updates", 1) == 0
    assert train("a", "--updates", 2) == 2 and "add --resume" in capsys.readouterr().err
    assert train("a", "--resume", "--gate-beta", 1) == 2 and "--gate-beta 1.0 (was 5.0)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, message", [
    (["--udpates", "2"], "did you mean --updates?"),
    (["--env", "alfword"], "invalid choice: 'alfword'"),
    (["--preset", "huge"], "unknown preset huge"),
    (["--data", "/nowhere"], "--data /nowhere has no folder json_2.1.1/train"),
    (["--init", "/nowhere"], "/nowhere holds no saved policy"),
    (["--resume", "--out", "/nowhere"], "/nowhere is no run folder"),
    (["--preset", "tiny", "--model", "/nowhere"], "cannot load the model /nowhere"),
])
def test_bad_input_is_one_line_and_code_2(arguments, message, tmp_path, games):
    data = [] if "--data" in arguments else ["--data", str(games)]
    out = subprocess.run([sys.executable, str(ROOT / "train_seed.py"), *data, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert out.returncode == 2 and message in out.stderr
    assert [line for line in out.stderr.splitlines() if line.startswith("error:")] == out.stderr.splitlines()[-1:]


def test_a_missing_data_folder(tmp_path):
    out = subprocess.run([sys.executable, str(ROOT / "train_seed.py"), "--out", "x"], cwd=tmp_path, capture_output=True, text=True,
                         env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ALFWORLD_DATA": str(tmp_path / "nowhere")})
    assert out.returncode == 2 and "ALFWORLD_DATA is" in out.stderr.splitlines()[-1] and not (tmp_path / "nowhere").exists()


def test_a_policy_of_another_preset_is_refused(train, sft, tmp_path, capsys):
    shutil.copytree(sft / "policy", tmp_path / "other")
    identity = json.loads((tmp_path / "other" / "policy.json").read_text())
    (tmp_path / "other" / "policy.json").write_text(json.dumps({**identity, "preset": "qwen2.5-3b"}))
    assert train("x", "--init", tmp_path / "other") == 2
    assert "was saved with" in capsys.readouterr().err


def test_a_full_disk_keeps_what_there_is(train, tmp_path, monkeypatch, capsys):
    write = runlog.append_line

    def full(path, line):
        if str(path).endswith("metrics.jsonl") and '"update": 2' in line:
            raise OSError(28, "No space left on device", str(path))
        write(path, line)
    monkeypatch.setattr(runlog, "append_line", full)
    assert train("a", "--updates", 3) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: cannot write") and "No space left" in error and "--resume" in error
    monkeypatch.undo()
    assert run(train_seed.main, "--resume", "--out", tmp_path / "a") == 0 and len(lines(tmp_path / "a" / "metrics.jsonl")) == 3


def test_a_corrupt_game_is_named_and_the_others_train(games, sft, tmp_path, capsys):
    shutil.copytree(games, tmp_path / "data")
    names = sorted((tmp_path / "data" / "json_2.1.1" / "train").iterdir())
    for folder in names[:9]:
        next(folder.glob("*/game.tw-pddl")).write_text("{")
    assert run(train_seed.main, *SMALL, "--tasks-per-update", 6, "--group-size", 2, "--data", tmp_path / "data", "--init", sft / "policy",
               "--updates", 1, "--out", tmp_path / "a") == 0
    error = capsys.readouterr().err
    assert "game left out: json_2.1.1/train/" in error and lines(tmp_path / "a" / "metrics.jsonl")[0]["crashed"] > 0


@pytest.mark.parametrize("what, message", [("reward", "episode 3: the reward is not finite"),
                                           ("logprob", "episode 3: the log-prob while sampling is not finite"),
                                           ("gap", "re-scored log-probs differ from those recorded while sampling")])
def test_what_is_not_finite_stops_with_update_and_episode(train, monkeypatch, capsys, what, message):
    play = update.rollout

    def broken(*args, **options):
        trajectories, crashed = play(*args, **options)
        step = trajectories[3].steps[1]
        if what == "reward":
            step.reward = float("nan")
        elif what == "logprob":
            step.logprobs[0] = float("inf")
        else:
            step.logprobs[0] -= 50.0
        return trajectories, crashed
    monkeypatch.setattr(update, "rollout", broken)
    assert train("a", "--updates", 1) == 2
    error = capsys.readouterr().err
    assert message in error and (what == "gap" or "update 1, json_2.1.1/train/" in error)


def test_out_of_memory_goes_on_with_half(train, tmp_path, monkeypatch, capsys):
    """A micro-batch that does not fit: its optimisation step starts again, and no number counts twice."""
    objective, calls = update.objective, []

    def short_of_memory(*args):
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return objective(*args)
    monkeypatch.setattr(update, "objective", short_of_memory)
    assert train("a", "--updates", 1, "--batch-tokens", 3000) == 0 and "micro-batches of 1,500 tokens" in capsys.readouterr().err
    monkeypatch.undo()
    assert train("b", "--updates", 1, "--batch-tokens", 1500) == 0
    a, b = (lines(tmp_path / name / "metrics.jsonl")[0] for name in "ab")
    assert a["tokens"] == b["tokens"] and all(a[k] == pytest.approx(b[k], rel=1e-4) for k in ("entropy", "rl_loss", "opd_loss", "grad_norm"))


def test_a_teacher_without_skills_in_its_prompt_stops_the_run(train, monkeypatch, capsys):
    monkeypatch.setattr(update, "H", lambda context, skill: context)
    assert train("a", "--updates", 1) == 2 and "no skill reached the teacher" in capsys.readouterr().err


def test_a_method_that_never_gets_a_skill_stops(train, capsys):
    assert train("a", "--skill-tokens", 2, "--updates", 1) == 2
    assert "none of the 8 analyses of the first update is a usable skill" in capsys.readouterr().err


def test_the_size_of_micro_batches_changes_nothing_but_rounding(train, tmp_path):
    weights = []
    for name, size in (("a", 100_000), ("b", 700)):
        assert train(name, "--updates", 1, "--batch-tokens", size, "--opd-coef", 0.5) == 0
        from safetensors.torch import load_file
        weights.append(load_file(tmp_path / name / "checkpoints/update-1/policy/model.safetensors"))
        start = load_file(tmp_path / name / "start/model.safetensors")
    # Adam's first step has the size of the learning rate whatever the gradient's, so compare the direction of the whole step.
    a, b = (torch.cat([(w[k] - start[k]).flatten() for k in sorted(start)]) for w in weights)
    assert torch.nn.functional.cosine_similarity(a, b, dim=0) > 0.999 and a.norm() > 0.01


def test_frozen_weights_stop_after_the_first_update(train, monkeypatch, capsys):
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    assert train("a", "--updates", 2) == 2 and "changed no weight" in capsys.readouterr().err


def test_a_task_that_comes_twice_is_played_differently(train, tmp_path, games):
    shutil.copytree(games, tmp_path / "data")
    for folder in sorted((tmp_path / "data" / "json_2.1.1" / "train").iterdir())[1:]:
        shutil.rmtree(folder)
    assert train("a", "--data", tmp_path / "data", "--updates", 1) == 0
    played = lines(tmp_path / "a" / "trajectories.jsonl")
    assert len({t["task"]["id"] for t in played}) == 1 and [t["group"] for t in played] == [0] * 4 + [1] * 4
    ids = [json.dumps([s["action_ids"] for s in t["steps"]]) for t in played]
    assert len(set(ids)) == 8


def test_next_tasks_is_a_walk_through_all_tasks():
    config = make_config({"preset": "tiny", "tasks_per_update": 4})
    tasks = list(range(10))
    walk = [t for update in range(5) for t in train_seed.next_tasks(config, tasks, update)]
    assert sorted(walk[:10]) == tasks == sorted(walk[10:]) and walk[:10] != walk[10:]
    assert walk != [t for u in range(5) for t in train_seed.next_tasks(make_config({"preset": "tiny", "tasks_per_update": 4, "seed": 1}), tasks, u)]


# --- eval.py

def test_eval_reports_and_compares(train, tmp_path, capsys):
    assert train("a", "--method", "grpo", "--updates", 2) == 0 and train("b", "--updates", 2) == 0
    capsys.readouterr()
    result = tmp_path / "result.json"
    assert run(eval_script.main, "--run", tmp_path / "a", "--compare", tmp_path / "b", "--repeats", 2, "--json", result) == 0
    text, data = capsys.readouterr().out, json.loads(result.read_text())
    assert "McNemar p" in text and "Wilson" not in text and "6 games" in text
    first, second = data["evaluations"]
    assert first["games"] == 12 and set(first["outcomes"]) == set(second["outcomes"]) and data["comparison"]["games"] == 6
    assert first["rule"] == "the last checkpoint" and first["update"] == 2 and first["manifest"] == second["manifest"]
    # what was evaluated during training is what eval.py finds with the same settings
    during = lines(tmp_path / "a" / "evaluations.jsonl")[-1]
    assert run(eval_script.main, "--run", tmp_path / "a", "--json", result) == 0
    assert json.loads(result.read_text())["evaluations"][0]["outcomes"] == during["outcomes"]


def test_eval_does_not_depend_on_batches_and_slots(train, tmp_path, games, groundings):
    from seed.config import load_config
    from seed.envs.alfworld import AlfWorld
    from seed.evaluation import evaluate
    from seed.policy import load_policy
    assert train("a", "--updates", 1) == 0
    config = load_config(tmp_path / "a" / "config.json")
    policy = load_policy(config, tmp_path / "a" / "checkpoints/update-1/policy")
    results = []
    for slots, sample_tokens in ((18, 131072), (3, 131072), (18, 700)):
        env = AlfWorld(games, slots, groundings)
        config.sample_tokens = sample_tokens
        results.append(evaluate(policy, env, env.tasks("train"), config, repeats=2)["outcomes"])
    assert results[0] == results[1] == results[2] and len(results[0]) == 18


def test_eval_of_base_start_and_best(train, tmp_path, games):
    assert train("a", "--updates", 2, "--eval-every", 1, "--save-every", 1) == 0
    for choice in ("start", "best"):
        assert run(eval_script.main, "--run", tmp_path / "a", "--checkpoint", choice, "--episodes", 3, "--json", tmp_path / "r.json") == 0
        assert json.loads((tmp_path / "r.json").read_text())["evaluations"][0]["checkpoint"] == choice
    assert run(eval_script.main, "--model", "base", "--preset", "tiny", "--data", games, "--episodes", 2) == 0


@pytest.mark.parametrize("arguments, message", [
    ([], "give either --run FOLDER or --model base"),
    (["--run", "/nowhere"], "/nowhere is no run folder"),
    (["--model", "base", "--compare", "x"], "--compare needs --run"),
    (["--model", "base", "--episodes", "0"], "expected at least 1"),
    (["--model", "base", "--splt", "train"], "did you mean --split?"),
])
def test_eval_bad_input(arguments, message, capsys):
    assert run(eval_script.main, *arguments) == 2
    assert message in capsys.readouterr().err


def test_eval_of_a_split_that_is_not_there(capsys):
    assert run(eval_script.main, "--model", "base", "--preset", "tiny", "--data", shared("alfworld"), "--split", "valid_seen") == 2
    assert "no split valid_seen" in capsys.readouterr().err
