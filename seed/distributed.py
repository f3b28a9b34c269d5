"""Several processes, one update: each rank plays its own tasks; counts and gradients are summed over all of them.

    torchrun --nproc-per-node 2 --local-ranks-filter 0 train_seed.py --env alfworld

Not in the paper, whose authors train on eight GPUs with a framework of their own choice. Here every rank holds the whole
model (4-bit weights with adapters are small), so only the trained weights' gradients travel. In one process every function
below gives back what it was given.
"""
import collections
import datetime
import os
from typing import Callable

import torch
import torch.distributed as dist

LONGEST_WAIT = datetime.timedelta(hours=12)  # the first rank may do Stage 1 alone


def start() -> None:
    """Join the group that torchrun has announced in the environment; alone, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if (card := int(os.environ["LOCAL_RANK"])) < torch.cuda.device_count():
            torch.cuda.set_device(card)
        # The functions of torch.distributed.nn keep the group of the moment of their import as a default, and with it gloo's threads, which
        # can abort the process at its end. The model's library imports them later: so they come first, while there is no group.
        from torch.distributed import nn  # noqa: F401
        # Each tensor goes by the backend of where it lies: the tiny model stays on the CPU, whatever the machine has.
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST_WAIT)


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def stop() -> None:
    """The end, together: a process that leaves while another still talks to it may end in an abort."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def first_alone(work: Callable):
    """`work()` on the first rank, then, when it is done, on the others, who find what it left."""
    if rank() == 0:
        result = work()
    if world() > 1:
        dist.barrier()
    return result if rank() == 0 else work()


def gather(items: list) -> list:
    """The items of all ranks, on every rank."""
    if world() == 1:
        return items
    parts = [None] * world()
    dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]


def add_up(tensors: list[torch.Tensor]) -> None:
    """Each tensor becomes its sum over the ranks. (A rank's gradient is its share of the mean over all ranks' tokens.)"""
    if world() > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def add_up_by_name(numbers: dict[str, float]) -> dict[str, float]:
    """Sums of named numbers over the ranks; a name may be missing on some."""
    sums = collections.defaultdict(float)
    for part in gather([dict(numbers)]):
        for name, number in part.items():
            sums[name] += number
    return sums
