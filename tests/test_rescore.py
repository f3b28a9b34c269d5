"""seed/rescore.py: chunked equals full, padding has no influence, gradients reach action tokens only."""
import random

import pytest
import torch
from fakes import random_policy

from seed import rescore
from seed.rescore import action_logprobs, micro_batches, score


@pytest.fixture(scope="module")
def policy():
    return random_policy()


def make_rows(number=9, seed=0):
    rng = random.Random(seed)
    ids = lambda low, high: [rng.randrange(5, 600) for _ in range(rng.randint(low, high))]
    return [(ids(3, 50), ids(1, 12)) for _ in range(number)]


def full(policy, prompt, action):
    """The textbook way: all logits of one unpadded sequence."""
    logits = policy.model(torch.tensor([prompt + action])).logits[0, len(prompt) - 1:-1]
    return logits.float().log_softmax(-1).gather(1, torch.tensor(action)[:, None])[:, 0]


@pytest.mark.parametrize("chunk", [1, 7, 256])
@pytest.mark.parametrize("batch_tokens", [1, 200, 10_000])
def test_equals_the_full_logits(policy, chunk, batch_tokens, monkeypatch):
    monkeypatch.setattr(rescore, "CHUNK", chunk)
    rows = make_rows()
    with torch.no_grad():
        for scored, (prompt, action) in zip(score(policy, rows, batch_tokens), rows):
            assert torch.allclose(scored, full(policy, prompt, action), atol=1e-5) and scored.min() < -1


def test_left_padding_with_right_positions_gives_the_same(policy):
    (prompt, action), pad = make_rows(1)[0], 17
    ids = torch.tensor([[policy.pad_id] * pad + prompt + action])
    mask = torch.tensor([[0] * pad + [1] * (len(prompt) + len(action))])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = policy.model(ids, attention_mask=mask, position_ids=positions).logits[0, pad + len(prompt) - 1:-1]
        padded = logits.log_softmax(-1).gather(1, torch.tensor(action)[:, None])[:, 0]
        assert torch.allclose(padded, score(policy, [(prompt, action)], 999)[0], atol=1e-5)
        wrong = policy.model(ids).logits[0, pad + len(prompt) - 1:-1].log_softmax(-1).gather(1, torch.tensor(action)[:, None])[:, 0]
        assert (wrong - padded).abs().max() > 0.1    # without mask and positions the test would notice


def test_pad_equal_to_the_end_token_changes_nothing(policy, monkeypatch):
    rows = [(p, a + [policy.tokenizer.eos_token_id]) for p, a in make_rows()]
    before = score(policy, rows, 400)
    _, _, mask = action_logprobs(policy, rows)
    assert mask.sum().item() == sum(len(a) for _, a in rows)      # exactly one end token a row is in the mask
    monkeypatch.setattr(policy, "pad_id", policy.tokenizer.eos_token_id)
    assert all(torch.equal(a, b) for a, b in zip(before, score(policy, rows, 400)))


def test_train_and_eval_agree(policy):
    rows = make_rows()
    before = score(policy, rows, 400)
    policy.model.train()
    after = score(policy, rows, 400)
    policy.model.eval()
    assert all(torch.equal(a, b) for a, b in zip(before, after))


def test_gradient_equals_that_of_the_full_logits_in_any_micro_batch(policy, monkeypatch):
    rows, weights = make_rows(), torch.linspace(-1, 2, 9)
    grads = []
    for chunk, sizes in ((256, [9]), (5, [4, 5]), (1, [1] * 9)):
        monkeypatch.setattr(rescore, "CHUNK", chunk)
        policy.model.zero_grad()
        start = 0
        for size in sizes:
            logp, _, _ = action_logprobs(policy, rows[start:start + size])
            (logp.sum(1) * weights[start:start + size]).sum().backward()
            start += size
        grads.append([p.grad.clone() for p in policy.trainable()])
    policy.model.zero_grad()
    sum(weights[i] * full(policy, *row).sum() for i, row in enumerate(rows)).backward()
    grads.append([p.grad.clone() for p in policy.trainable()])
    policy.model.zero_grad()
    for other in grads[:-1]:
        for a, b in zip(other, grads[-1]):
            assert torch.allclose(a, b, atol=1e-3, rtol=1e-3)
    assert max(g.abs().max() for g in grads[-1]) > 1


def test_only_action_tokens_get_a_gradient(policy):
    """Gradient with respect to the head's input: non-zero at positions that predict an action token, 0 elsewhere."""
    rows = make_rows(2)
    seen = {}

    class Backbone:
        def __call__(self, input_ids, use_cache):
            hidden = policy.model.model(input_ids=input_ids, use_cache=use_cache).last_hidden_state.detach().requires_grad_()
            seen["hidden"] = hidden
            return type("Out", (), {"last_hidden_state": hidden})

    class Fake:
        pad_id, device, model, eyes = policy.pad_id, "cpu", policy.model, None

        def weights(self, reference):
            import contextlib
            return contextlib.nullcontext((Backbone(), policy.model.lm_head))
    logp, entropy, mask = action_logprobs(Fake(), rows)
    logp.sum().backward()
    touched = seen["hidden"].grad.abs().sum(-1) > 0
    expected = torch.zeros_like(touched)
    for i, (prompt, action) in enumerate(rows):
        expected[i, len(prompt) - 1:len(prompt) + len(action) - 1] = True
    assert torch.equal(touched, expected)
    assert (logp[~mask] == 0).all() and (entropy[~mask] == 0).all() and (entropy[mask] > 0).all()


def test_entropy_by_hand(policy):
    prompt, action = make_rows(1)[0]
    _, entropy, _ = action_logprobs(policy, [(prompt, action)])
    logp = policy.model(torch.tensor([prompt + action])).logits[0, len(prompt) - 1:-1].log_softmax(-1)
    assert torch.allclose(entropy[0], -(logp.exp() * logp).sum(-1), atol=1e-4)


def test_micro_batches_respect_the_budget_and_lose_no_row():
    rng = random.Random(0)
    for _ in range(100):
        lengths = [rng.randint(1, 300) for _ in range(rng.randint(1, 50))]
        batches = micro_batches(lengths, 600)
        assert sorted(i for b in batches for i in b) == list(range(len(lengths)))
        assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= 600 for b in batches)
    assert micro_batches([], 10) == [] and micro_batches([50, 50], 10) == [[0], [1]]
