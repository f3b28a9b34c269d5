"""Sampling replies: exact token ids and their log-probs, for many prompts at once.

In the paper: a_t ~ pi_theta(. | h_t). What is returned is the record of the action: these ids are scored later under h_t,
h~_t and the reference, and are never decoded and encoded again.

Shapes: B rows that are being sampled, T columns of the cache (prompt and reply so far), L = max_new_tokens, V the
vocabulary. Rows are padded on the left (behind a shared beginning), so that every row's next token stands in the last column;
positions count real tokens only.

Every row draws from a random stream of its own (inverse CDF: one uniform number a token). So a reply depends on its
prompt and its stream and not on its neighbours: an evaluation gives the same outcome at any batch size (but for the rounding of
sums in batches of other shapes: next to nothing in float32, visible in bfloat16).

What plain generation wastes, and is saved here: a finished row leaves the batch, and once half of the places are free,
waiting prompts take them; equal prompts are read once (the N members of a group start alike); so is a beginning that all
prompts of a batch share (the analyzer's instructions).
"""
import os
import random
from dataclasses import dataclass

import torch
from torch.nn.functional import pad
from tqdm import tqdm

from seed.errors import UserError
from seed.vision import images_of

SHORT = 16  # a shared beginning of fewer tokens is not worth a forward pass of its own


@dataclass
class Reply:
    action_ids: list[int]     # up to and with the end-of-turn token, where it came
    logprobs: list[float]     # log pi(a_l | prompt, a_<l) of the policy itself, whatever the sampling temperature
    ended: bool               # False: the reply was cut at max_new_tokens


@dataclass
class Rows:
    """What is being sampled. Row b answers prompt number_B[b], of whose reply it has count_B[b] tokens."""
    number_B: torch.Tensor
    count_B: torch.Tensor
    mask_BT: torch.Tensor     # which columns hold real tokens
    logits_BV: torch.Tensor   # of the next token
    uniform_BL: torch.Tensor  # the numbers that choose the tokens
    tokens_BL: torch.Tensor
    logp_BL: torch.Tensor
    ahead_B: torch.Tensor     # a text token's position minus the number of tokens before it (not 0 behind pictures)
    cache: object             # keys and values of the T columns

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: values for name, values in vars(self).items() if name != "cache"}

    def keep(self, which_B: torch.Tensor) -> "Rows | None":
        """Only some rows (None where there is none), and only the columns that one of them uses."""
        if not which_B.any():
            return None
        self.cache.batch_select_indices(which_B.nonzero()[:, 0])
        vars(self).update({name: values[which_B] for name, values in self.tensors().items()})
        return self.shift(-int(self.mask_BT.any(0).int().argmax()))

    def shift(self, columns: int) -> "Rows":
        """So many unused columns more on the left, or fewer."""
        self.mask_BT = pad(self.mask_BT, (columns, 0))
        for layer in self.cache.layers:
            layer.keys, layer.values = (pad(x, (0, 0, columns, 0)) for x in (layer.keys, layer.values))
        return self

    def join(self, other: "Rows") -> "Rows":
        width = max(self.mask_BT.shape[1], other.mask_BT.shape[1])
        a, b = (rows.shift(width - rows.mask_BT.shape[1]) for rows in (self, other))
        for mine, theirs in zip(a.cache.layers, b.cache.layers):
            mine.keys, mine.values = torch.cat([mine.keys, theirs.keys]), torch.cat([mine.values, theirs.values])
        vars(a).update({name: torch.cat([values, b.tensors()[name]]) for name, values in a.tensors().items()})
        return a


@torch.no_grad()
def sample(policy, prompts: list[list[int]], streams: list[random.Random], max_new_tokens: int, temperature: float,
           batch_tokens: int, title: str = "") -> list[Reply]:
    """One reply for each prompt, in order. `batch_tokens`: how many tokens, padding included, are in a batch at most. `title`: of a
    progress bar, where one is wanted."""
    was_training = policy.model.training
    policy.model.eval()
    replies: list[Reply | None] = [None] * len(prompts)
    waiting = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), prompts[i]))  # the longest goes first
    ends = torch.tensor(sorted(policy.end_ids), device=policy.device)
    rows = None
    bar = tqdm(total=len(prompts), desc=title, unit="reply", leave=False, disable=None if title else True)
    while waiting or rows:
        if waiting:
            taken, width = (len(rows.mask_BT), rows.mask_BT.shape[1]) if rows else (0, 0)
            places = max(1, batch_tokens // (max(width, len(prompts[waiting[-1]])) + max_new_tokens))
            if 2 * taken <= places:
                while waiting and taken < places:
                    # A quarter of the tokens at once: while prompts are read, a layer's inner values take more than the cache.
                    number = min(places - taken, max(1, batch_tokens // 4 // len(prompts[waiting[-1]])))
                    chosen, waiting = waiting[-number:], waiting[:-number]
                    new = read(policy, [prompts[i] for i in chosen], chosen, [streams[i] for i in chosen], max_new_tokens)
                    rows, taken = rows.join(new) if rows else new, taken + len(chosen)
        ended_B = choose(rows, ends, temperature)
        done_B = ended_B | (rows.count_B == max_new_tokens)
        if done_B.any():
            for b in done_B.nonzero()[:, 0].tolist():
                n = int(rows.count_B[b])
                replies[int(rows.number_B[b])] = Reply(rows.tokens_BL[b, :n].tolist(), rows.logp_BL[b, :n].tolist(), bool(ended_B[b]))
            rows = rows.keep(~done_B)
            bar.update(int(done_B.sum()))
        if rows:
            advance(policy, rows)
    bar.close()
    policy.model.train(was_training)
    return replies


def read(policy, prompts, numbers, streams, max_new_tokens) -> Rows:
    """The prompts' keys and values, and the logits of their replies' first tokens."""
    keys = [(tuple(p), *(image.tobytes() for image in images_of(p))) for p in prompts]
    unique = list(dict(zip(keys, prompts)).values())
    shared = min(len(os.path.commonprefix(unique)), min(map(len, unique)) - 1)
    cache = None
    if len(unique) > 1 and shared >= SHORT and not policy.eyes:  # (equal image tokens may stand for other pictures)
        start = torch.tensor([unique[0][:shared]], device=policy.device)
        cache = policy.model(input_ids=start, use_cache=True, logits_to_keep=1).cache
        cache.batch_repeat_interleave(len(unique))
    else:
        shared = 0
    width = max(map(len, unique)) - shared
    ids_BT = torch.tensor([[policy.pad_id] * (width - len(p) + shared) + list(p[shared:]) for p in unique], device=policy.device)
    mask_BT = torch.tensor([[1] * shared + [0] * (width - len(p) + shared) + [1] * (len(p) - shared) for p in unique], device=policy.device)
    inputs = dict(input_ids=ids_BT, position_ids=(mask_BT.cumsum(1) - 1).clamp(min=0)[:, shared:])
    if policy.eyes:
        with policy.weights() as (backbone, _):
            inputs = policy.eyes.inputs(backbone, unique, ids_BT, mask_BT)
    ahead_B = inputs["position_ids"].reshape(-1, *ids_BT.shape)[0, :, -1] + 1 - mask_BT.sum(1)
    out = policy.model(**inputs, attention_mask=mask_BT, cache=cache, use_cache=True, logits_to_keep=1)
    if any(layer.is_sliding for layer in out.cache.layers):
        raise UserError("this model attends to a sliding window, whose cache cannot be rearranged here: give --model another one")
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    which_B = torch.tensor([place[key] for key in keys], device=policy.device)
    out.cache.batch_select_indices(which_B)
    uniform_BL = torch.tensor([[stream.random() for _ in range(max_new_tokens)] for stream in streams], dtype=torch.double, device=policy.device)
    tokens_BL = torch.zeros(uniform_BL.shape, dtype=torch.long, device=policy.device)
    return Rows(torch.tensor(numbers, device=policy.device), torch.zeros_like(which_B), mask_BT[which_B], out.logits[:, -1][which_B],
                uniform_BL, tokens_BL, torch.zeros_like(uniform_BL), ahead_B[which_B], out.cache)


def choose(rows: Rows, ends: torch.Tensor, temperature: float) -> torch.Tensor:
    """Every row's next token; returns which rows it ends."""
    logits_BV = rows.logits_BV.double()
    # Inverse CDF: the token whose interval of cumulated probability holds the uniform number u.
    cdf_BV = (logits_BV / temperature).softmax(-1).cumsum(-1)
    next_B1 = rows.count_B[:, None]
    u_B1 = rows.uniform_BL.gather(1, next_B1)
    token_B1 = torch.searchsorted(cdf_BV, u_B1 * cdf_BV[:, -1:], right=True).clamp(max=cdf_BV.shape[1] - 1)
    rows.tokens_BL.scatter_(1, next_B1, token_B1)
    rows.logp_BL.scatter_(1, next_B1, logits_BV.log_softmax(-1).gather(1, token_B1))
    rows.count_B += 1
    return torch.isin(token_B1[:, 0], ends)


def advance(policy, rows: Rows) -> None:
    """The tokens just chosen join the cache; the logits of the next ones."""
    last_B1 = rows.tokens_BL.gather(1, rows.count_B[:, None] - 1)
    rows.mask_BT = pad(rows.mask_BT, (0, 1), value=1)
    positions_B1 = rows.mask_BT.sum(1, keepdim=True) - 1 + rows.ahead_B[:, None]
    out = policy.model(input_ids=last_B1, attention_mask=rows.mask_BT, position_ids=positions_B1, cache=rows.cache, use_cache=True,
                       logits_to_keep=1)
    rows.cache, rows.logits_BV = out.cache, out.logits[:, -1]
