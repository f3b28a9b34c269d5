"""How many tokens fit into a micro-batch, and what happens when they do not.

Not in the paper (eight GPUs of 80 GB). The memory of a training pass is a constant (weights, optimiser) and so much for each
token of the micro-batch: with gradient checkpointing one vector a layer, one layer's inner values, and the chunk of logits.
Both are measured, and the micro-batch takes most of what is free. Micro-batches change the order of additions and nothing
else, so a run may use another size than the one before.
"""
import ctypes
import random
import sys

import torch

from seed.errors import UserError
from seed.rescore import action_logprobs

ON_CPU = 8192             # more is not faster on a CPU
PROBES = (2048, 4096)     # tokens of the two passes that are measured
M_MMAP_THRESHOLD = -3     # from malloc.h
SHARE = 0.8               # of the free memory; the rest is for sampling's fragments and other programs


def micro_batch_tokens(policy, batch_tokens: int) -> int:
    """`batch_tokens`, or where it is 0 as many as fit into the memory that is free."""
    if policy.device.type != "cuda":
        give_back_freed_memory()
        return batch_tokens or ON_CPU
    if batch_tokens:
        return batch_tokens
    rng, peaks = random.Random(0), []
    for tokens in PROBES:
        ids = [rng.randrange(1000) for _ in range(512)]
        torch.cuda.reset_peak_memory_stats(policy.device)
        logp_BL, _, _ = action_logprobs(policy, [(ids[:400], ids[400:])] * (tokens // 512))
        logp_BL.sum().backward()
        policy.model.zero_grad()
        peaks.append(torch.cuda.max_memory_allocated(policy.device))
    free = torch.cuda.mem_get_info(policy.device)[0] + torch.cuda.memory_reserved(policy.device)
    fits = budget(PROBES, peaks, SHARE * free)
    print(f"micro-batches of {fits:,} tokens: {peaks[1] / 2 ** 30:.1f} GiB at {PROBES[1]:,}, {free / 2 ** 30:.1f} GiB to have", file=sys.stderr)
    return fits


def budget(tokens: tuple[int, int], peaks: list[int], most: float) -> int:
    """On the line through two measured peaks, the number of tokens whose peak is `most` bytes, in whole 512s.

    >>> budget((2048, 4096), [3_000, 5_000], 9_000)
    8192
    """
    a_token = max(1e-9, (peaks[1] - peaks[0]) / (tokens[1] - tokens[0]))
    return max(512, min(131072, int(tokens[0] + (most - peaks[0]) / a_token) // 512 * 512))


def give_back_freed_memory() -> bool:
    """On a CPU with glibc: blocks from 8 MB on go back to the system when they are freed. By itself glibc raises that limit to 32 MB
    with every large block that is freed, and the scraps of a training pass then pile up: 6.7 instead of 2.0 GB for 4,096 tokens of
    SmolLM2-135M, at the same speed. Returns whether there was something to set."""
    try:
        return ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 8 * 2 ** 20) == 1
    except (OSError, AttributeError):  # another C library
        return False


def with_less_if_needed(config, work, undo=lambda: None):
    """`work()`; where the GPU's memory does not hold it, `undo()` and once more with half the tokens in a micro-batch."""
    try:
        return work()
    except torch.OutOfMemoryError:
        undo()
    torch.cuda.empty_cache()
    config.batch_tokens = max(512, config.batch_tokens // 2)
    print(f"out of memory: micro-batches of {config.batch_tokens:,} tokens from here on", file=sys.stderr)
    try:
        return work()
    except torch.OutOfMemoryError as error:
        raise UserError(f"out of memory again with --batch-tokens {config.batch_tokens}: go on with --resume after closing other "
                        f"programs, or start again with a smaller --max-prompt-tokens, --sample-tokens or model") from error
