"""Peak memory of re-scoring and of one training step: logits of every position against ours, at Qwen's vocabulary.

    python bench/memory.py
    python bench/memory.py --rows 1 2 4 8

Each cell is a process of its own, so that its peak is its own. The second table is arithmetic, no measurement: what the
presets need on a card, from the models' published shapes. The last line is the ratio at the largest batch, of a training step.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import argparse
import json
import random
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

PROMPT, ACTION, VOCABULARY, HIDDEN, LAYERS = 600, 60, 151_936, 256, 2
# hidden, layers, inner, query heads, key heads, head size, vocabulary, embeddings tied to the head
SHAPES = {"smollm2-135m": (576, 30, 1536, 9, 3, 64, 49_152, True), "qwen2.5-1.5b": (1536, 28, 8960, 12, 2, 128, 151_936, True),
          "qwen2.5-3b": (2048, 36, 11008, 16, 2, 128, 151_936, True), "qwen2.5-7b": (3584, 28, 18944, 28, 4, 128, 152_064, False),
          "qwen3-1.7b": (2048, 28, 6144, 16, 8, 128, 151_936, True)}


def one_cell(way: str, task: str, rows: int) -> None:
    """Do it once, print this process's peak memory above that of the model alone, in MiB."""
    import torch
    from seed.rescore import action_logprobs
    from stand_in import BarePolicy, random_qwen2
    policy = BarePolicy(random_qwen2(VOCABULARY, HIDDEN, LAYERS, 4 * HIDDEN, 4, 2, tied=True))
    model = policy.model
    rng = random.Random(0)
    batch = [tuple([rng.randrange(VOCABULARY) for _ in range(n)] for n in (PROMPT, ACTION)) for _ in range(rows)]

    def full():
        ids = torch.tensor([prompt + action for prompt, action in batch])
        logp = model(input_ids=ids, use_cache=False).logits[:, PROMPT - 1:-1].float().log_softmax(-1)
        return logp.gather(2, ids[:, PROMPT:, None])[..., 0]

    score = full if way == "full" else lambda: action_logprobs(policy, batch)[0]
    for p in model.parameters():  # the gradients belong to the model's share
        p.grad = torch.zeros_like(p)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.set_grad_enabled(task == "training step"):
        logp = score()
        if task == "training step":
            (-logp.mean()).backward()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def on_a_card(preset: str, train_tokens: int, sample_tokens: int) -> dict:
    """GiB, estimated: weights (NF4 with double quantisation, 0.516 bytes a weight; embeddings and head in bf16), adapters
    (float32 weights, gradient, two Adam moments, the frozen reference), one micro-batch with gradient checkpointing (a vector
    a layer, one layer's inner values, forward and backward, and 256 rows of logits); the cache of a sampling batch, with one
    layer's inner values while prompts are read (adapters compute in float32)."""
    from seed.config import PRESETS
    hidden, layers, inner, heads, keys, size, vocabulary, tied = SHAPES[preset]
    rank = PRESETS[preset]["lora_rank"]
    linear = [(hidden, heads * size), (hidden, keys * size), (hidden, keys * size), (heads * size, hidden),
              (hidden, inner), (hidden, inner), (inner, hidden)]
    weights = layers * sum(a * b for a, b in linear) * 0.516 + vocabulary * hidden * 2 * (1 if tied else 2)
    adapters = layers * sum(rank * (a + b) for a, b in linear) * (4 + 4 + 8 + 4)
    layer = 2 * (6 * hidden + 4 * heads * size + 4 * inner + 7 * rank)
    training = train_tokens * (layers * hidden * 2 + 2 * layer) + 256 * vocabulary * 4 * 4
    cache = sample_tokens * layers * 2 * keys * size * 2 + sample_tokens // 4 * (12 * inner + 8 * hidden)
    # Sampling and learning take turns: only the larger of the two counts.
    return {"weights": weights / 2 ** 30, "adapters": adapters / 2 ** 30, "training": training / 2 ** 30, "cache": cache / 2 ** 30,
            "peak": (weights + adapters + max(training, cache)) / 2 ** 30 + 0.8}   # 0.8: CUDA's context and fragments


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        return one_cell(args.cell[0], args.cell[1], int(args.cell[2]))
    ratio = None
    print(f"MiB above the model, rows of {PROMPT} + {ACTION} tokens, vocabulary {VOCABULARY:,}\n{'':16s}{'rows':>6s}{'full':>10s}{'ours':>10s}{'ratio':>8s}")
    for task in ("re-scoring", "training step"):
        for rows in args.rows:
            full, ours = (float(subprocess.run([sys.executable, __file__, "--cell", way, task, str(rows)], check=True, capture_output=True,
                                               text=True).stdout.split()[-1]) for way in ("full", "ours"))
            ratio = full / ours
            print(f"{task:16s}{rows:6d}{full:10.0f}{ours:10.0f}{ratio:8.1f}", flush=True)
    print(f"\nestimated GiB on a card\n{'preset':14s}{'weights':>9s}{'adapters':>9s}" + "".join(f"{card:>8d} GB" for card in (8, 12, 16, 24))
          + "   (tokens a micro-batch / tokens a sampling batch that fit)")
    for preset in SHAPES:
        fits = []
        for card in (8, 12, 16, 24):
            train, sampled = (next((t for t in (65536, 32768, 16384, 8192, 4096) if on_a_card(preset, *pair(t))["peak"] < 0.92 * card), 0)
                              for pair in (lambda t: (t, 0), lambda t: (0, t)))
            fits.append(f"{train // 1024}k/{sampled // 1024}k" if train and sampled else "-")
        need = on_a_card(preset, 0, 0)
        print(f"{preset:14s}{need['weights']:9.2f}{need['adapters']:9.2f}" + "".join(f"{fit:>11s}" for fit in fits))
    print(json.dumps({"full_over_ours_at_largest": round(ratio, 1)}))


if __name__ == "__main__":
    main()
