"""seed/memory.py: one second chance with half the tokens, and the same gradients either way."""
import platform
import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from fakes import random_policy

from seed.config import make_config
from seed.errors import UserError
from seed.memory import ON_CPU, budget, micro_batch_tokens, with_less_if_needed


def failing(times: int):
    calls = []

    def work():
        calls.append(1)
        if len(calls) <= times:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"
    return work


def test_memory_that_is_enough_changes_nothing():
    config = make_config({"preset": "tiny"})
    assert with_less_if_needed(config, failing(0)) == "done" and config.batch_tokens == 4096


def test_out_of_memory_halves_once_and_says_so(capsys):
    config, undone = make_config({"preset": "tiny"}), []
    assert with_less_if_needed(config, failing(1), lambda: undone.append(1)) == "done"
    assert config.batch_tokens == 2048 and undone == [1] and "micro-batches of 2,048 tokens" in capsys.readouterr().err


def test_out_of_memory_twice_says_what_to_do():
    with pytest.raises(UserError, match="out of memory again with --batch-tokens 2048"):
        with_less_if_needed(make_config({"preset": "tiny"}), failing(2))


def test_other_errors_pass():
    with pytest.raises(ValueError):
        with_less_if_needed(make_config({"preset": "tiny"}), lambda: int("x"))


def test_the_number_that_was_given_is_taken_and_a_cpu_has_its_own():
    policy = random_policy()
    assert micro_batch_tokens(policy, 777) == 777 and micro_batch_tokens(policy, 0) == ON_CPU


def test_the_budget_is_on_the_line_through_two_peaks():
    constant, a_token = 5_000_000_000, 100_000
    fits = budget((2048, 4096), [constant + a_token * n for n in (2048, 4096)], 8_000_000_000)
    assert fits == 29_696 and constant + a_token * fits <= 8_000_000_000 < constant + a_token * (fits + 512)
    assert budget((2048, 4096), [10, 20], 1) == 512 and budget((2048, 4096), [5, 5], 10) == 131072


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, whose allocator this is about")
def test_glibc_gives_large_blocks_back():
    """Once a block of 31 MB was freed, glibc by itself takes one of 16 MB from its heap, where the scraps pile up; told otherwise, it
    maps the block (`hblks`, the fourth number of mallinfo2, counts those) and gives it back."""
    code = """
import ctypes, sys
from seed.memory import give_back_freed_memory
assert sys.argv[1] == "0" or give_back_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.mallinfo2.restype = type("Info", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in "abcdefghij"]})
libc.free(libc.malloc(31 << 20))
before = libc.mallinfo2().d
block = libc.malloc(16 << 20)
print(libc.mallinfo2().d - before)"""
    mapped = [subprocess.run([sys.executable, "-c", code, told], cwd=ROOT, capture_output=True, text=True, check=True).stdout for told in "01"]
    assert mapped == ["0\n", "1\n"]
