"""seed/tiny.py: the tokenizer loses nothing, the shipped model is what the script makes, and it is what it should be."""
import json
import random
from pathlib import Path

import pytest
from fakes import random_text

from seed import analyzer, prompts
from seed.config import TINY_MODELS, make_config
from seed.policy import load_policy, load_tokenizer
from seed.tiny import SENTENCES, pretrain

TINY_MODEL = TINY_MODELS / "alfworld"


@pytest.fixture(scope="module")
def record():
    return json.loads((TINY_MODEL / "pretraining.json").read_text())


def test_the_script_still_takes_its_first_steps(record, tmp_path):
    _, tokenizer, losses = pretrain(record["chunks"], record["seed"], most_steps=3)
    assert losses == pytest.approx(record["first_losses"][:3], rel=2e-3)
    assert losses[0] > 5 and record["last_loss"] < 0.3
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == (TINY_MODEL / "tokenizer.json").read_text()


def test_the_shipped_files_are_small(record):
    assert sum(f.stat().st_size for f in TINY_MODEL.iterdir()) < 10 * 2 ** 20
    policy = load_policy(make_config({"preset": "tiny"}))
    assert sum(p.numel() for p in policy.trainable()) == record["parameters"] and 0.8e6 < record["parameters"] < 3e6


def test_every_text_comes_back():
    tokenizer, rng = load_tokenizer(TINY_MODEL), random.Random(0)
    texts = [random_text(rng) for _ in range(300)] + ["去 é \t \n\n  x", "go to desk 12", "<think></think>", "a" * 300]
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_fixed_sentences_are_single_tokens_and_words_have_one_id():
    tokenizer = load_tokenizer(TINY_MODEL)
    for sentence in (*prompts.fixed("alfworld"), *analyzer.fixed("alfworld"), *SENTENCES):
        assert len(tokenizer.encode(sentence.rstrip(" "))) == 1, sentence
    for word in (" mug", " countertop", " 1", "take", " desklamp"):
        assert len(tokenizer.encode(word)) == 1
    assert tokenizer.encode("You arrive at desk 1.")[1:3] == tokenizer.encode(" desk 1")


def test_the_model_acts_in_the_format_and_follows_the_template(env):
    """A few games: nearly every reply is well formed, most actions are admissible."""
    from seed.evaluation import evaluate
    config = make_config({"preset": "tiny"})
    result = evaluate(load_policy(config), env, env.tasks("train"), config)
    assert result["malformed"] < 0.05 and result["inadmissible"] < 0.4 and 0 < result["wins"] < 18
