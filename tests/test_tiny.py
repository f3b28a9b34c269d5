"""seed/tiny.py: the tokenizer loses nothing, the shipped model is what the script makes, and it is what it should be."""
import importlib
import json
import random

import pytest
from fakes import random_text

from seed import analyzer, prompts, tiny
from seed.config import ENVIRONMENTS, TINY_MODELS, make_config
from seed.envs import expert, open_env, words
from seed.policy import load_policy, load_tokenizer
from seed.envs.alfworld_expert import SENTENCES
from seed.tiny import pretrain

TINY_MODEL = TINY_MODELS / "alfworld"


@pytest.fixture(scope="module")
def record():
    return json.loads((TINY_MODEL / "pretraining.json").read_text())


def test_the_script_still_takes_its_first_steps(record, tmp_path):
    _, tokenizer, losses = pretrain("alfworld", record["chunks"], record["seed"], most_steps=3)
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


@pytest.mark.parametrize("env", [env for env in ENVIRONMENTS if env != "alfworld"])   # that one is held to its record above
def test_a_model_can_be_made_for_every_environment(env):
    """The first two steps of each, from a small chunk: prompts with and without skills, answers that can be read."""
    tiny.EPISODES, before = 6, tiny.EPISODES
    try:
        pairs = tiny.chunk(env, 0, 0)
        model, tokenizer, losses = tiny.pretrain(env, 1, 0, most_steps=2)
    finally:
        tiny.EPISODES = before
    rules, words_ = expert(env), words(env)
    prompts_, replies = zip(*pairs)
    acting = [(prompt, reply) for prompt, reply in pairs if prompt.startswith(words_.head)]
    assert 0 < sum(prompts.SKILL in prompt for prompt, _ in acting) < len(acting) < len(pairs)
    assert sum(words_.read(reply, ()).valid for _, reply in acting) == len(acting)
    assert any(analyzer.read_answer(reply)[1] for prompt, reply in pairs if prompt.startswith(words_.analysis))
    assert 1 <= len(losses) <= 2 and losses[-1] < 10 and all(tokenizer.decode(tokenizer.encode(text)) == text for text in (*prompts_[:20], *replies[:20]))
    assert rules.hints("nothing that it knows") == ()


@pytest.mark.parametrize("env", [env for env in ENVIRONMENTS if env not in ("alfworld", "ezpoints")])
def test_practice_games_are_not_those_of_evaluations(env, tmp_path, monkeypatch):
    """By what the agent sees at the start. (EZPoints has too few deals: its practice is its training split; ALFWorld's layouts: test_alfworld_games.py.)"""
    few = {} if env == "sokoban" else {"train_games": 12, "seen_games": 12, "unseen_games": 12}   # (Sokoban's are held against the default ones)
    config = make_config({"env": env, "preset": "tiny", "data": "made", **few})
    monkeypatch.setattr(importlib.import_module(f"seed.envs.{env}"), "CACHE", tmp_path / "data")
    real, practice = open_env(config), expert(env).practice(tmp_path / "practice", "0 0")
    other = expert(env).practice(tmp_path / "other", "0 1")
    start = lambda env, task: (env.reset(0, task).observation, env.reset(0, task).description)
    starts = lambda env, split: {start(env, task) for task in env.tasks(split)[:60]}
    assert not starts(practice, "train") & (starts(real, "valid_seen") | starts(real, "valid_unseen"))
    assert starts(practice, "train") != starts(other, "train")
