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
import math
import random
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from seed.sampling import sample

VOCABULARY, END, LONGEST, MEAN = 8192, 1, 160, 40


class RandomPolicy:
    """A Qwen2 with random weights; no tokenizer is needed."""
    pad_id, end_ids = 0, {END}

    def __init__(self, hidden: int, layers: int, device: str, dtype=torch.float32):
        from transformers import Qwen2Config, Qwen2ForCausalLM
        torch.manual_seed(0)
        config = Qwen2Config(vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
                             num_attention_heads=hidden // 64, num_key_value_heads=max(1, hidden // 256), pad_token_id=0, eos_token_id=END)
        self.device, self.model = torch.device(device), Qwen2ForCausalLM(config)
        head = torch.nn.Linear(hidden, VOCABULARY)
        with torch.no_grad():
            head.weight.mul_(0.01)
            head.bias.zero_()
            head.bias[END] = math.log(VOCABULARY / MEAN)
        self.model.lm_head = head
        self.model.to(device, dtype).eval()


def make_prompts(number: int) -> list[list[int]]:
    rng = random.Random(0)
    ids = lambda n: [rng.randrange(2, VOCABULARY) for _ in range(n)]
    start = ids(25)
    return [start + ids(rng.randint(25, 575)) for _ in range(number)]


@torch.no_grad()
def plain(policy, prompts, seed: int) -> int:
    """`generate` on all prompts at once; returns the number of tokens in the replies."""
    torch.manual_seed(seed)
    longest = max(map(len, prompts))
    ids = torch.tensor([[policy.pad_id] * (longest - len(p)) + p for p in prompts], device=policy.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    out = policy.model.generate(input_ids=ids, attention_mask=mask, do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
                                max_new_tokens=LONGEST)[:, longest:].tolist()
    return sum(row.index(END) + 1 if END in row else len(row) for row in out)


def ours(policy, prompts, seed: int) -> int:
    replies = sample(policy, prompts, [random.Random(f"{seed} {i}") for i in range(len(prompts))], LONGEST, 1.0, 10 ** 9)
    return sum(len(reply.action_ids) for reply in replies)


def compare(policy, number: int, rounds: int) -> dict:
    prompts, best = make_prompts(number), {}
    for turn in range(rounds):
        for name, run in (("generate", plain), ("ours", ours)):
            began = time.perf_counter()
            tokens = run(policy, prompts, turn)
            if policy.device.type == "cuda":
                torch.cuda.synchronize()
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
    print(json.dumps(compare(RandomPolicy(args.hidden, args.layers, "cpu"), args.prompts, args.rounds)))
