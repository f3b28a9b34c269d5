"""What an update costs: SEED's against GRPO's on the same trajectories, and ours against TRL's GRPOTrainer.

    python bench/update_cost.py
    python3.11 -m venv /tmp/trl && /tmp/trl/bin/pip install trl==1.16.0 -r requirements.txt
    python bench/update_cost.py --trl-python /tmp/trl/bin/python

First part: the tiny policy plays some made games and analyses them; then scoring, backward passes and the optimiser's step of
the two methods take turns on these trajectories (the analyses' generation is not in it). The floor: a backward pass costs two
forward passes, so GRPO is 3 (4 with the reference's pass) and one more forward pass makes it 1.33 (1.25) times as much;
checkpointing would make it less, and the skill in the teacher's prompt makes it a little more.

Second part, where an environment with TRL is given: the same random model with Qwen's vocabulary, the same rows, the same loss
(clipped surrogate, token mean, no KL), forward, backward and step, in processes that take turns; TRL pads rows as its trainer
does, to the longest of the generation batch. The last line has the ratios; null is not measured.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

ROWS, MICRO, VOCABULARY = 16, 4, 151_936


def seed_over_grpo(rounds: int) -> float:
    import torch
    from seed.analyzer import analyze
    from seed.config import make_config
    from seed.envs import open_env
    from seed.evaluation import play_options
    from seed.metrics import Meter
    from seed.policy import load_policy
    from seed.rollout import rollout
    from seed.update import Row, accumulate, rescore_rows
    config = make_config({"preset": "tiny", "data": "made"})
    env, policy = open_env(config), load_policy(config)
    policy.freeze_reference()
    optimizer = torch.optim.AdamW(policy.trainable(), lr=0.0)
    episodes = [(task, group, copy) for group, task in enumerate(env.tasks("train")[:6]) for copy in range(8)]
    trajectories, _ = rollout(policy, env, episodes, "bench", **play_options(config, 1.0))
    analyze(policy, trajectories, "bench", temperature=config.analyzer_temperature, most_prompt_tokens=config.analyzer_prompt_tokens,
            most_skill_tokens=config.skill_tokens, batch_tokens=config.sample_tokens)
    best, rng = {}, random.Random(0)
    for _ in range(rounds):
        for config.method in ("grpo", "seed"):
            rows = [Row(t, step, rng.uniform(-1, 1)) for t in trajectories for step in t.steps]
            tokens = sum(len(row.step.action_ids) for row in rows)
            began = time.perf_counter()
            rescore_rows(config, policy, [rows], 0)
            accumulate(config, policy, rows, tokens, 0, Meter(), measure=False)
            optimizer.step()
            best[config.method] = min(best.get(config.method, 1e9), time.perf_counter() - began)
    taught = sum(t.skill is not None for t in trajectories) / len(trajectories)
    print(f"GRPO {best['grpo']:.2f} s, SEED {best['seed']:.2f} s, {len(rows)} rows, {taught:.0%} of the trajectories with a skill")
    return best["seed"] / best["grpo"]


def make_work():
    """The model, and rows (prompt, action, advantage) of mixed length."""
    from stand_in import random_qwen2
    model = random_qwen2(VOCABULARY, 256, 4, 1024, 4, 2, tied=True)
    rng = random.Random(0)
    ids = lambda n: [rng.randrange(2, VOCABULARY) for _ in range(n)]
    return model, [(ids(rng.randint(200, 600)), ids(rng.randint(10, 80)), rng.uniform(-1, 1)) for _ in range(ROWS)]


def our_losses(model, rows):
    """The losses of one update's micro-batches, as shares of the whole."""
    import torch
    from seed.grpo import clipped_surrogate, token_mean
    from seed.rescore import action_logprobs, micro_batches
    from stand_in import BarePolicy
    policy, tokens = BarePolicy(model), sum(len(action) for _, action, _ in rows)

    def losses():
        for part in micro_batches([len(p) + len(a) for p, a, _ in rows], MICRO * 640):
            logp, _, mask = action_logprobs(policy, [rows[i][:2] for i in part])
            advantages = torch.tensor([rows[i][2] for i in part])
            yield token_mean(clipped_surrogate(logp, logp.detach(), advantages, mask)[0], mask, tokens)
    return losses


def trl_losses(model, rows):
    import torch
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from trl import GRPOConfig, GRPOTrainer
    from seed.config import TINY_MODELS
    from seed.policy import load_tokenizer
    arguments = GRPOConfig(output_dir="/tmp/trl-bench", per_device_train_batch_size=MICRO, gradient_accumulation_steps=ROWS // MICRO,
                           num_generations=MICRO, beta=0.0, loss_type="dapo", use_cpu=True, bf16=False, report_to=[],
                           gradient_checkpointing=False, max_completion_length=80, mask_truncated_completions=False)
    trainer = GRPOTrainer(model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=arguments,
                          train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": ["x"] * ROWS}), fingerprint="bench"),
                          processing_class=load_tokenizer(TINY_MODELS / "alfworld"))
    trainer.current_gradient_accumulation_steps = ROWS // MICRO
    longest, most = max(len(p) for p, _, _ in rows), max(len(a) for _, a, _ in rows)
    tensor = torch.tensor
    batch = {"prompt_ids": tensor([[0] * (longest - len(p)) + p for p, _, _ in rows]),
             "prompt_mask": tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _, _ in rows]),
             "completion_ids": tensor([a + [0] * (most - len(a)) for _, a, _ in rows]),
             "completion_mask": tensor([[1] * len(a) + [0] * (most - len(a)) for _, a, _ in rows]),
             "advantages": tensor([x for _, _, x in rows])}
    tokens = batch["completion_mask"].sum()
    model.train()

    def losses():
        for start in range(0, ROWS, MICRO):
            part = {name: values[start:start + MICRO] for name, values in batch.items()} | {"num_items_in_batch": tokens}
            yield trainer.compute_loss(model, part)
    return losses


def one_process(way: str) -> None:
    """Two updates of one kind; prints the second's seconds, the peak above the model alone, and the loss."""
    import torch
    model, rows = make_work()
    losses = {"ours": our_losses, "trl": trl_losses}[way](model, rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def update() -> float:
        total = 0.0
        for loss in losses():
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loss = update()
    began = time.perf_counter()
    update()
    print(json.dumps({"seconds": time.perf_counter() - began, "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
                      "loss": loss}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", help="a Python with TRL and this project's requirements")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one_process(args.one)
    ratios = {"seed_over_grpo": round(seed_over_grpo(args.rounds), 2), "trl_over_ours_time": None, "trl_over_ours_memory": None}
    if args.trl_python:
        results = {"ours": [], "trl": []}
        for _ in range(args.rounds):
            for way in results:
                out = subprocess.run([args.trl_python, __file__, "--one", way], check=True, capture_output=True, text=True).stdout
                results[way].append(json.loads(out.splitlines()[-1]))
        least = {way: {key: min(r[key] for r in rounds) for key in rounds[0]} for way, rounds in results.items()}
        for way, r in least.items():
            print(f"{way:5s} {r['seconds']:6.2f} s, {r['memory']:6.0f} MiB above the model, loss {r['loss']:+.5f}")
        ratios |= {"trl_over_ours_time": round(least["trl"]["seconds"] / least["ours"]["seconds"], 2),
                   "trl_over_ours_memory": round(least["trl"]["memory"] / least["ours"]["memory"], 2)}
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
