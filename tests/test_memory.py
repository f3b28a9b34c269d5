"""seed/memory.py: one second chance with half the tokens, and the same gradients either way."""
import pytest
import torch
from fakes import random_policy

from seed.config import make_config
from seed.errors import UserError
from seed.memory import ON_CPU, budget, give_back_freed_memory, micro_batch_tokens, with_less_if_needed


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


def test_glibc_is_told_to_give_memory_back():
    import platform
    assert give_back_freed_memory() == (platform.libc_ver()[0] == "glibc")
