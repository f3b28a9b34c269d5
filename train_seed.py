"""Stage 2, the RL loop: SEED, and GRPO as the same loop without the distillation.

    python train_seed.py --env alfworld
    python train_seed.py --env alfworld --method grpo --seed 1 --updates 30 --out runs/my-run
    python train_seed.py --resume --out runs/my-run
    torchrun --nproc-per-node 2 --local-ranks-filter 0 train_seed.py --env alfworld

In the paper: Stage 2. Each update plays, analyses, re-scores and learns (`seed/update.py`); the updated policy plays *and
analyses* next: that is the self-evolving loop, and this file is the loop with its checkpoints and evaluations.

How it differs from the paper:
1. beta, clip, KL and group size are the paper's; learning rate, batch size and (tiny only) lambda are those of the preset.
2. The task order follows from --seed, as every sampled token does: an interrupted run goes on bitwise equal.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import json
import random
import sys
import time
from pathlib import Path

import torch

from seed import distributed
from seed.config import Config, parse
from seed.envs import open_env
from seed.errors import UserError, exit_cleanly
from seed.evaluation import evaluate, spread
from seed.library import library_for
from seed.memory import micro_batch_tokens
from seed.methods import METHODS
from seed.metrics import check_sampling, one_line, warnings
from seed.policy import load_policy
from seed.runlog import RunLog, must_be_new
from seed.trajectory import manifest_hash
from seed.update import one_update
from train_sft import stage1


@exit_cleanly
def main():
    distributed.start()
    config, given = parse(__doc__)
    run = None
    if config.resume:
        run, config = RunLog.reopen(config, given)
    elif distributed.rank() == 0:
        must_be_new(config.out)
    if config.tasks_per_update < distributed.world():
        raise UserError(f"--tasks-per-update {config.tasks_per_update} for {distributed.world()} processes: expected at least one task each")
    env = distributed.first_alone(lambda: open_env(config))
    tasks, library = training_tasks(config, env), library_for(config)
    start = run.folder / "start" if run else distributed.first_alone(lambda: first_policy(config, env))
    policy = load_policy(config, start)
    policy.freeze_reference()
    optimizer = torch.optim.AdamW(policy.trainable(), lr=config.learning_rate, weight_decay=config.weight_decay)
    if run:
        if run.facts()["games"] != manifest_hash(tasks):
            raise UserError(f"{run.folder} was trained on other games: set ALFWORLD_DATA or --data as it was")
        first = run.restore(policy, optimizer, library)
    else:
        first = 0
        run = RunLog.create(config, {"games": manifest_hash(tasks), "data": str(env.root), "started_from": str(start)})
        run.save_start(policy)
        print(f"run folder: {run.folder}", file=sys.stderr)
    config.batch_tokens = micro_batch_tokens(policy, config.batch_tokens)  # 0 means: measured, once the optimiser is there
    if first == 0:
        run_evaluation(run, config, policy, env, 0, library)

    if not config.updates:
        run.draw()
        print(f"{config.method} trains nothing: this was its evaluation", file=sys.stderr)
    began, fingerprint = time.time(), policy.fingerprint()
    for update in range(first, config.updates):
        metrics, trajectories = one_update(config, policy, optimizer, env, next_tasks(config, tasks, update), update, library)
        check_sampling(metrics, config.dtype)
        if metrics["grad_norm"] > 0 and metrics["weights"] == fingerprint:
            raise UserError(f"update {update + 1} changed no weight: is --learning-rate {config.learning_rate} too small?")
        fingerprint = metrics["weights"]
        for trajectory in trajectories:
            run.write("trajectories.jsonl", trajectory.to_json(update=update + 1))
        run.write("metrics.jsonl", json.dumps(metrics))
        last = update + 1 == config.updates
        if evaluated := last or (update + 1) % config.eval_every == 0:
            run_evaluation(run, config, policy, env, update + 1, library)
            run.draw()
        if evaluated or (update + 1) % config.save_every == 0:
            run.save(update + 1, policy, optimizer, library)
        left = (time.time() - began) / (update + 1 - first) * (config.updates - update - 1)
        print(f"update {update + 1}/{config.updates}: {one_line(metrics)}, about {left / 60:.0f} min left", file=sys.stderr)
        for warning in warnings(metrics):
            print(f"  note: {warning}", file=sys.stderr)
    distributed.stop()
    print(f"done: see {run.folder / 'curves.png'}, and python eval.py --run {run.folder} --split valid_unseen", file=sys.stderr)


def first_policy(config, env) -> Path | None:
    """Where RL starts: Stage 1's result (made now if need be), the base model (None), or a folder."""
    if config.init == "base":
        return None
    if config.init != "auto":
        return Path(config.init)
    # Stage 1 is made once, with seed 0, and shared by the runs of all methods and seeds.
    return stage1(Config(**{**vars(config), "seed": 0}), env)


def training_tasks(config, env) -> list:
    """The tasks of training, or the share of them that --train-fraction asks for: 0.2 is a part of 0.4, for all seeds the same."""
    tasks = env.tasks("train")
    shuffled = random.Random("train fraction").sample(tasks, len(tasks))
    return sorted(shuffled[:max(1, round(config.train_fraction * len(tasks)))], key=lambda task: task.id)


def next_tasks(config, tasks, update: int) -> list:
    """The tasks of an update: a walk through one shuffled list after another, a function of (seed, update) alone."""
    chosen = []
    for i in range(update * config.tasks_per_update, (update + 1) * config.tasks_per_update):
        epoch, place = divmod(i, len(tasks))
        chosen.append(random.Random(f"{config.seed} epoch {epoch}").sample(tasks, len(tasks))[place])
    return chosen


def run_evaluation(run, config, policy, env, update: int, library) -> None:
    """Play the fixed list, always the same games, with the plain policy; a method that acts with skills plays it with them, too."""
    split = config.eval_split
    if split not in env.splits():  # published data can be had without it
        split = "valid_unseen"
        print(f"no split {config.eval_split} in the data: evaluating on {split}", file=sys.stderr)
    for skills in [None, library] if METHODS[config.method].acts_with else [None]:
        result = evaluate(policy, env, spread(env.tasks(split), config.eval_episodes), config, library=skills)
        run.write("evaluations.jsonl", json.dumps({"update": update, "split": split, **result}))
        print(f"update {update}: {result['wins']} of {result['games']} {split} games won{' with skills' if skills else ''} = "
              f"{result['success']:.1%} [{result['low']:.1%}, {result['high']:.1%}], "
              + (f"score {result['mean_score']:.2f}, " if result["mean_score"] is not None else "") + f"{result['mean_turns']:.1f} turns, "
              f"{result['malformed']:.1%} malformed", file=sys.stderr)


if __name__ == "__main__":
    main()
