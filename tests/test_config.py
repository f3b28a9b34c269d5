"""seed/config.py: presets, precedence, and one clear line for every mistake."""
import json
import sys
from dataclasses import fields

import pytest

from seed.config import PRESETS, Config, as_dict, check_python, load_config, make_config, parse
from seed.errors import UserError


def test_command_line_over_preset_over_default():
    config, given = parse("doc", arguments=["--preset", "tiny", "--group-size", "4", "--no-quantize"])
    assert config.group_size == 4 and config.max_turns == 15 and config.clip_ratio == 0.2
    assert given == {"preset", "group_size", "quantize"} and config.out == "runs/alfworld-tiny-seed-seed0"


def test_auto_takes_tiny_without_a_gpu(monkeypatch):
    import torch
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert make_config({}).preset == "tiny"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    config = make_config({})
    assert config.preset == "qwen2.5-3b" and config.quantize and config.lora_rank == 32 and config.dtype == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert make_config({}).dtype == "float32"


def test_defaults_are_the_papers():
    c = Config()
    assert (c.group_size, c.tasks_per_update, c.updates, c.clip_ratio, c.kl_coef, c.opd_coef, c.gate_beta, c.max_turns,
            c.history_length, c.sft_tasks, c.sft_rollouts, c.sft_epochs, c.eval_temperature, c.invalid_penalty, c.learning_rate
            ) == (8, 16, 150, 0.2, 0.01, 0.01, 5.0, 50, 5, 180, 8, 3, 0.4, 0.1, 1e-6)


def test_environments_bring_the_papers_settings():
    config = make_config({"env": "search", "preset": "qwen2.5-3b", "max_turns": 3})
    assert (config.history_length, config.invalid_penalty, config.kl_coef, config.max_turns) == (4, 0.01, 0.001, 3)


def test_stage_1_has_its_own_short_names():
    config, _ = parse("doc", stage1=True, arguments=["--preset", "tiny", "--tasks", "3", "--rollouts", "2", "--epochs", "1"])
    assert (config.sft_tasks, config.sft_rollouts, config.sft_epochs) == (3, 2, 1)


@pytest.mark.parametrize("arguments, message", [
    (["--udpates", "3"], "unknown option --udpates, did you mean --updates"),
    (["--updates", "three"], "invalid int value: 'three'"),
    (["--updates", "0"], "--updates is 0: expected at least 1"),
    (["--env", "alfword"], "invalid choice: 'alfword'"),
    (["--method", "dpo"], "invalid choice: 'dpo'"),
    (["--preset", "huge"], "unknown preset huge: choose one of tiny"),
    (["--batch-tokens", "-5"], "--batch-tokens is -5: expected 0 or more"),
    (["--opd-coef", "-1"], "--opd-coef is -1.0: expected 0 or more"),
    (["--train-fraction", "20"], "--train-fraction is 20.0: expected more than 0, at most 1"),
    (["--group-size", "1"], "expected at least 2"),
    (["--temperature", "0"], "expected more than 0"),
    (["--learning-rate", "nan"], "expected more than 0"),
    (["--preset", "tiny", "--quantize"], "give --lora-rank"),
    (["alfworld"], "unknown option alfworld, did you mean --env alfworld"),
    (["--lambda", "1"], "unknown option --lambda, did you mean --opd-coef"),
])
def test_mistakes_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        parse("doc", arguments=arguments)
    assert "\n" not in str(error.value)


def test_help_lists_every_knob_with_meaning_and_paper_value(capsys):
    with pytest.raises(SystemExit):
        parse("doc", arguments=["--help"])
    text = capsys.readouterr().out
    for knob in fields(Config):
        assert f"--{knob.name.replace('_', '-')}" in text
    assert "lambda, weight of the distillation loss" in text and "(paper:" in text


def test_a_stored_configuration_comes_back(tmp_path):
    config = make_config({"preset": "tiny", "seed": 3})
    (tmp_path / "config.json").write_text(json.dumps({"config": as_dict(config)}))
    assert load_config(tmp_path / "config.json") == config
    for damage in ("{", "[]", json.dumps({"config": {"env": "alfworld"}})):
        (tmp_path / "config.json").write_text(damage)
        with pytest.raises(UserError, match="not a configuration of this version"):
            load_config(tmp_path / "config.json")
    with pytest.raises(UserError, match="is no run folder"):
        load_config(tmp_path / "nowhere" / "config.json")


def test_other_pythons_are_told_at_once(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    with pytest.raises(UserError, match="runs on 3.11 and 3.12"):
        check_python()


def test_presets_set_knobs_that_exist():
    names = {knob.name for knob in fields(Config)}
    assert all(set(values) <= names for values in PRESETS.values())
