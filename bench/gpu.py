"""What one card does with the default preset: memory, tokens a second, SEED against GRPO. No network, no data; under six minutes.

    python bench/gpu.py
    python bench/gpu.py --small          # the same code on a CPU with toy sizes: does the script run at all?

Qwen2.5-3B's shapes with random weights in NF4, LoRA and gradient checkpointing as the preset has them; prompts and replies
as long as ALFWorld's are with an instruct model. Replies end with probability 1/60 a token (a bias of the output layer, which
is therefore not tied to the embeddings here: 0.6 GiB more than the real model). Paste what it prints, with card and date.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import argparse
import datetime
import json
import random
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from memory import SHAPES, on_a_card
from seed.config import make_config
from seed.memory import micro_batch_tokens
from seed.metrics import Meter, peak_memory
from seed.policy import add_adapter, keep_4bit_weights_as_they_are
from seed.rescore import score
from seed.sampling import sample
from seed.trajectory import Step, Task, Trajectory
from seed.update import Row, accumulate
from stand_in import BarePolicy, ending_head, generate, random_qwen2

MEAN, STEPS = 60, 30


def random_policy(shape, config, device) -> BarePolicy:
    """NF4 + LoRA with random weights, in the shapes of a preset (or toy ones)."""
    from bitsandbytes.nn import Linear4bit, Params4bit
    hidden, layers, inner, heads, keys, _, vocabulary, _ = shape
    dtype = getattr(torch, config.dtype)
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model, head = random_qwen2(vocabulary, hidden, layers, inner, heads, keys, tied=False), ending_head(vocabulary, hidden, MEAN)
    torch.set_default_dtype(torch.float32)
    for parent in list(model.model.modules()):
        for name, linear in list(parent.named_children()):
            if isinstance(linear, torch.nn.Linear):
                packed = Linear4bit(linear.in_features, linear.out_features, linear.bias is not None, compute_dtype=dtype, quant_type="nf4", device="meta")
                packed.weight = Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True)
                packed.bias = linear.bias
                setattr(parent, name, packed.to(device))
    keep_4bit_weights_as_they_are(model)
    model.lm_head = head
    model.is_loaded_in_4bit = True  # as a loaded model says of itself: the adapters are then those for 4-bit layers
    model.activation_checkpointing_enable({"use_reentrant": False})
    return BarePolicy(add_adapter(model, config.lora_rank))


def ids(rng, low: int, high: int, vocabulary: int) -> list[int]:
    return [rng.randrange(2, vocabulary) for _ in range(rng.randint(low, high))]


def timed(work) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--preset", default="qwen2.5-3b", choices=[name for name in SHAPES if name.startswith("qwen2.5")])
    args = parser.parse_args()
    if not args.small and not torch.cuda.is_available():
        raise SystemExit("error: no CUDA device: this measures a card; --small runs the same code on the CPU with toy sizes")
    device = "cpu" if args.small else "cuda"
    config = make_config({"preset": args.preset, "method": "seed", "kl_coef": 0.0})
    shape = (64, 2, 128, 2, 1, 32, 512, False) if args.small else SHAPES[args.preset]
    prompts_of, replies, number = ((20, 60), 24, 8) if args.small else ((300, 1500), 256, 128)
    card = "CPU, toy sizes" if args.small else torch.cuda.get_device_name()
    print(f"{datetime.date.today()}, {card}, torch {torch.__version__}, {args.preset} shapes, {config.dtype}")
    policy, vocabulary = random_policy(shape, config, device), shape[6]
    held = torch.cuda.memory_allocated() / 2 ** 30 if torch.cuda.is_available() else peak_memory()
    peak_memory()  # from here on, not of the building
    print(f"weights and adapters: {held:.2f} GiB")
    rng, results = random.Random(0), {}

    prompts = [ids(rng, *prompts_of, vocabulary) for _ in range(number)]
    streams = lambda: [random.Random(i) for i in range(number)]
    sampled = []
    seconds = timed(lambda: sampled.extend(sample(policy, prompts, streams(), replies, 1.0, config.sample_tokens)))
    tokens = sum(len(reply.action_ids) for reply in sampled)
    results["sampling_tokens_per_second"], results["sampling_gib"] = round(tokens / seconds), peak_memory()
    print(f"sampling: {results['sampling_tokens_per_second']} tokens/s, peak {results['sampling_gib']} GiB")

    def plain():
        for start in range(0, number, number // 2):  # twice half of the prompts: about as many at once as ours
            counts.append(generate(policy, prompts[start:start + number // 2], replies))
    counts = []
    seconds = timed(plain)
    results["sampling_speedup"] = round(results["sampling_tokens_per_second"] / (sum(counts) / seconds), 2)
    print(f"plain generate: {sum(counts) / seconds:.0f} tokens/s, peak {peak_memory()} GiB; ours is {results['sampling_speedup']} times as fast")

    task = Task("alfworld", "bench", "bench", "bench")
    rows = [Row(Trajectory(task, 0, 0), Step(None, prompt, action := ids(rng, 10, 110 if not args.small else 20, vocabulary),
                                             [0.0] * len(action), "", "", True, True, True, 0.0, ""), rng.uniform(-1, 1)) for prompt in prompts]
    taught = [(row.step.prompt_ids + ids(rng, 60, 60, vocabulary), row.step.action_ids) for row in rows]
    amount = sum(sum(map(len, row.ids)) for row in rows)
    config.method = "grpo"

    def learn():
        accumulate(config, policy, rows, sum(len(row.step.action_ids) for row in rows), 0, Meter(), measure=False)
    optimizer = torch.optim.AdamW(policy.trainable(), lr=0.0)
    for p in policy.trainable():
        p.grad = torch.zeros_like(p)
    optimizer.step()  # its moments take their memory; the reference adapter is as large as the adapter
    reference = [p.detach().clone() for p in policy.trainable()]
    for budget in (256, 512) if args.small else (4096, 8192, 16384, micro_batch_tokens(policy, 0)):
        config.batch_tokens = budget
        peak_memory()
        seconds = timed(learn)
        results[f"update_tokens_per_second_{budget}"], results[f"update_gib_{budget}"] = round(amount / seconds), peak_memory()
        print(f"update, micro-batches of {budget}: {amount / seconds:.0f} tokens/s, peak {results[f'update_gib_{budget}']} GiB")
    grpo, teacher = timed(learn), timed(lambda: score(policy, taught, config.batch_tokens))
    results["seed_over_grpo"] = round((grpo + teacher) / grpo, 2)
    # The paper's run: 150 updates of 128 episodes, here taken as 30 steps each, of the lengths above, with the reference's pass too.
    steps, lengths = 128 * STEPS, amount / len(rows)
    seconds = steps * (tokens / number / results["sampling_tokens_per_second"] + lengths / amount * (grpo + 2 * teacher))
    results["hours_for_150_updates"] = round(150 * seconds / 3600, 1)
    print(f"150 updates of 128 episodes of {STEPS} steps: about {results['hours_for_150_updates']} hours (analyses and evaluations not counted)")
    peak = max(value for name, value in results.items() if name in ("sampling_gib", "update_gib_8192", "update_gib_512"))
    results["a_24_gb_card_holds_it"] = peak < 0.92 * 24 - 0.8
    estimate = on_a_card(args.preset, 8192, config.sample_tokens)["peak"]
    print(f"SEED's update over GRPO's (no KL term): {results['seed_over_grpo']}; peak {peak} GiB (arithmetic says {estimate:.1f} for the real "
          f"model), a 24 GB card {'holds' if results['a_24_gb_card_holds_it'] else 'does not hold'} the defaults")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
