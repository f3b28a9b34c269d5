"""seed/sampling.py: the recorded ids and log-probs are those of the policy, whatever else is in the batch."""
import random
from collections import Counter

import pytest
import torch
from fakes import random_policy

from seed.rescore import score
from seed.sampling import sample


@pytest.fixture(scope="module")
def policy():
    return random_policy()


def prompts(policy, number, seed=0):
    rng = random.Random(seed)
    return [[rng.randrange(5, 600) for _ in range(rng.randint(3, 60))] for _ in range(number)]


def draw(policy, prompts, batch_tokens=100_000, temperature=1.0, seed="s", most=12):
    return sample(policy, prompts, [random.Random(f"{seed} {i}") for i in range(len(prompts))], most, temperature, batch_tokens)


def test_recorded_logprobs_are_the_rescored_ones(policy):
    texts = prompts(policy, 20)
    replies = draw(policy, texts)
    again = score(policy, [(p, r.action_ids) for p, r in zip(texts, replies)], 2000)
    assert sum(len(r.action_ids) for r in replies) > 100
    for reply, logp in zip(replies, again):
        assert torch.allclose(torch.tensor(reply.logprobs), logp, atol=1e-4) and logp.min() < -1


@pytest.mark.parametrize("batch_tokens", [1, 150, 500])
def test_replies_do_not_depend_on_the_batch(policy, batch_tokens):
    texts = prompts(policy, 24)
    assert [r.action_ids for r in draw(policy, texts, batch_tokens)] == [r.action_ids for r in draw(policy, texts)]
    assert [r.action_ids for r in draw(policy, texts[5:6], seed="s")] != []   # and not on the order either:
    streams = [random.Random(f"s {i}") for i in range(24)]
    backwards = sample(policy, texts[::-1], streams[::-1], 12, 1.0, 500)
    assert [r.action_ids for r in backwards[::-1]] == [r.action_ids for r in draw(policy, texts)]


def test_same_seed_same_replies_other_seed_others(policy):
    texts = prompts(policy, 6)
    assert draw(policy, texts) == draw(policy, texts)
    assert [r.action_ids for r in draw(policy, texts, seed="t")] != [r.action_ids for r in draw(policy, texts)]


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_frequencies_are_the_softmax(policy, temperature):
    prompt = prompts(policy, 1)[0]
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt])).logits[0, -1].double()
    exact, number = (logits / temperature).softmax(-1), 4000
    counts = Counter(r.action_ids[0] for r in draw(policy, [prompt] * number, temperature=temperature, most=1))
    for token in exact.topk(4).indices.tolist():
        p = exact[token].item()
        assert abs(counts[token] / number - p) < 4 * (p * (1 - p) / number) ** 0.5 + 1e-9
    likely = exact.topk(1).indices.item()
    reply = next(r for r in draw(policy, [prompt] * 50, temperature=temperature, most=1) if r.action_ids[0] == likely)
    assert reply.logprobs[0] == pytest.approx(logits.log_softmax(-1)[likely].item(), abs=1e-4)  # of the policy, not of the temperature


def test_replies_stop_at_the_end_token_or_are_marked(policy):
    end = policy.tokenizer.eos_token_id
    replies = draw(policy, prompts(policy, 300), most=25)
    ended = [r for r in replies if r.ended]
    assert 0 < len(ended) < 300
    for r in replies:
        assert len(r.action_ids) == len(r.logprobs) <= 25
        assert r.ended == (r.action_ids[-1] == end) and end not in r.action_ids[:-1]
        assert r.ended or len(r.action_ids) == 25


def test_training_mode_is_left_as_it_was(policy):
    policy.model.train()
    draw(policy, prompts(policy, 2))
    assert policy.model.training
    policy.model.eval()
