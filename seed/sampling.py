"""Sampling replies: exact token ids and their log-probs, for a batch of prompts.

In the paper: a_t ~ pi_theta(. | h_t). What is returned is the record of the action: these ids are scored later under h_t,
h~_t and the reference, and are never decoded and encoded again.

Shapes: B prompts, T the longest prompt, V the vocabulary. Prompts are padded on the left, so that every row's next token
stands in the last column; positions count real tokens only.

Every row draws from a random stream of its own (inverse CDF: one uniform number a token). So a reply depends on its
prompt and its stream and not on its neighbours: an evaluation gives the same outcome at any batch size (exactly in float32;
lower precision rounds differently in batches of different shape).
"""
import random
from dataclasses import dataclass

import torch


@dataclass
class Reply:
    action_ids: list[int]     # up to and with the end-of-turn token, where it came
    logprobs: list[float]     # log pi(a_l | prompt, a_<l) of the policy itself, whatever the sampling temperature
    ended: bool               # False: the reply was cut at max_new_tokens


@torch.no_grad()
def sample(policy, prompts: list[list[int]], streams: list[random.Random], max_new_tokens: int, temperature: float,
           batch_tokens: int) -> list[Reply]:
    """One reply for each prompt, in order. `batch_tokens`: how many tokens, padding included, are in a batch at most."""
    was_training = policy.model.training
    policy.model.eval()
    replies: list[Reply | None] = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # neighbours in length share a batch
    while order:
        rows = max(1, min(len(order), batch_tokens // (len(prompts[order[-1]]) + max_new_tokens)))
        batch, order = order[-rows:], order[:-rows]
        for i, reply in zip(batch, _sample_batch(policy, [prompts[i] for i in batch], [streams[i] for i in batch],
                                                 max_new_tokens, temperature)):
            replies[i] = reply
    policy.model.train(was_training)
    return replies


def _sample_batch(policy, prompts, streams, max_new_tokens, temperature):
    longest = max(map(len, prompts))
    ids_BT = torch.tensor([[policy.pad_id] * (longest - len(p)) + p for p in prompts], device=policy.device)
    mask_BT = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    positions_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
    replies = [Reply([], [], False) for _ in prompts]
    cache = None
    for _ in range(max_new_tokens):
        out = policy.model(input_ids=ids_BT, attention_mask=mask_BT, position_ids=positions_BT, cache=cache,
                           use_cache=True, logits_to_keep=1)
        cache = out.cache
        logits_BV = out.logits[:, -1].double()
        logp_BV = logits_BV.log_softmax(-1)
        # Inverse CDF: the token whose interval of cumulated probability holds the uniform number u.
        cdf_BV = (logits_BV / temperature).softmax(-1).cumsum(-1)
        u_B1 = torch.tensor([[stream.random()] for stream in streams], dtype=torch.double, device=policy.device)
        next_B1 = torch.searchsorted(cdf_BV, u_B1 * cdf_BV[:, -1:], right=True).clamp(max=cdf_BV.shape[1] - 1)
        chosen_B = logp_BV.gather(1, next_B1)[:, 0].tolist()
        for reply, token, logp in zip(replies, next_B1[:, 0].tolist(), chosen_B):
            if not reply.ended:
                reply.action_ids.append(token)
                reply.logprobs.append(logp)
                reply.ended = token in policy.end_ids
        if all(reply.ended for reply in replies):
            break
        ids_BT = next_B1
        mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(prompts), 1)], 1)
        positions_BT = positions_BT[:, -1:] + 1
    return replies
