"""bench/: each script runs and ends in its ratios. (What they are on a busy machine is not a test's business.)"""
import json
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize("command, ratios", [
    (["bench/sampling.py", "--hidden", "64", "--layers", "1", "--prompts", "8", "--rounds", "1"], {"speedup"}),
    (["bench/memory.py", "--rows", "1"], {"full_over_ours_at_largest"}),
    (["bench/gpu.py", "--small"], {"sampling_tokens_per_second", "sampling_speedup", "seed_over_grpo", "a_24_gb_card_holds_it"}),
])
def test_ends_in_its_ratios(command, ratios):
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    last = json.loads(done.stdout.splitlines()[-1])
    assert ratios <= set(last) and all(value > 0 for name, value in last.items() if name in ratios)
