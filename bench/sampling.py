"""Tokens a second of `seed.sampling.sample` against plain `model.generate`, same model, same prompts.

    python bench/sampling.py
    python bench/sampling.py --hidden 768 --layers 12 --prompts 128

Prompts of 50 to 600 tokens that share their first quarter hundred, replies of 1 to 160 tokens (a model with random weights
whose end-of-turn token comes with probability 1/40): what a rollout step looks like. `generate` pads all prompts to the
longest and goes on until the last reply has ended. The two take turns; the last line is the ratio of their best rounds.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import argparse
import json
import random
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from seed.sampling import sample
from stand_in import BarePolicy, ending_head, generate, random_qwen2

VOCABULARY, LONGEST, MEAN = 8192, 160, 40


def make_prompts(number: int) -> list[list[int]]:
    rng = random.Random(0)
    ids = lambda n: [rng.randrange(2, VOCABULARY) for _ in range(n)]
    start = ids(25)
    return [start + ids(rng.randint(25, 575)) for _ in range(number)]


def plain(policy, prompts, seed: int) -> int:
    torch.manual_seed(seed)
    return generate(policy, prompts, LONGEST)


def ours(policy, prompts, seed: int) -> int:
    replies = sample(policy, prompts, [random.Random(f"{seed} {i}") for i in range(len(prompts))], LONGEST, 1.0, 10 ** 9)
    return sum(len(reply.action_ids) for reply in replies)


def compare(policy, number: int, rounds: int) -> dict:
    prompts, best = make_prompts(number), {}
    for turn in range(rounds):
        for name, run in (("generate", plain), ("ours", ours)):
            began = time.perf_counter()
            tokens = run(policy, prompts, turn)
            best[name] = max(best.get(name, 0), tokens / (time.perf_counter() - began))
    for name, speed in best.items():
        print(f"{name:10s}{speed:10.0f} tokens/s")
    return {"speedup": round(best["ours"] / best["generate"], 2)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    model = random_qwen2(VOCABULARY, args.hidden, args.layers, 4 * args.hidden, args.hidden // 64, max(1, args.hidden // 256), tied=True)
    model.lm_head = ending_head(VOCABULARY, args.hidden, MEAN)
    print(json.dumps(compare(BarePolicy(model.eval()), args.prompts, args.rounds)))
