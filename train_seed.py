"""Stage 2, the RL loop: SEED, and GRPO as the same loop without the distillation.

    python train_seed.py --env alfworld
    python train_seed.py --env alfworld --method grpo --seed 1 --updates 30 --out runs/my-run
    python train_seed.py --resume --out runs/my-run

In the paper: section 3. One update: the policy plays a group of N episodes of each task; the same weights write a hindsight
skill s for each finished trajectory; the sampled action tokens are scored under the plain context h and under H(h, s); the
shift becomes a dense token loss beside GRPO,  L_seed = L_rl + lambda * L_opd.  `main` below reads in this order.

Shapes: N trajectories an update, B rows of a micro-batch (a row is one step), L action tokens of its longest reply.

How it differs from the paper:
1. One optimisation step an update (--minibatches 1), so ell_old is the first forward pass's ell, detached, and every ratio
   is exactly 1. The authors take several steps of 64 to 512 rows; --minibatches K does. ell_old and the teacher's ell_skill
   are then those of pi_old, scored once an update.
2. beta, clip, KL and group size are the paper's; learning rate, batch size and (tiny only) lambda are those of the preset.
3. The task order, every sampled token and every game follow from --seed: a run can be interrupted and goes on bitwise equal
   (tested on the CPU in float32).
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import json
import random
import sys
import time
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from seed.analyzer import analyze
from seed.augment import H
from seed.config import Config, parse
from seed.envs import open_env
from seed.errors import UserError, check_finite, exit_cleanly
from seed.evaluation import evaluate, play_options
from seed.grpo import clipped_surrogate, group_advantages, kl_k3, step_advantages, token_mean
from seed.methods import METHODS
from seed.metrics import (Meter, check_replies, check_sampling, check_skills, compare_gradients, one_line,
                          update_metrics, warnings)
from seed.policy import load_policy
from seed.rescore import action_logprobs, micro_batches, score
from seed.rollout import rollout
from seed.runlog import RunLog
from seed.trajectory import manifest_hash
from train_sft import stage1


@exit_cleanly
def main():
    config, given = parse(__doc__)
    run = None
    if config.resume:
        run, config = RunLog.reopen(config, given)
    env = open_env(config)
    tasks = env.tasks("train")
    start = run.folder / "start" if run else first_policy(config, env)
    policy = load_policy(config, start)
    policy.freeze_reference()
    optimizer = torch.optim.AdamW(policy.trainable(), lr=config.learning_rate, weight_decay=config.weight_decay)
    if run:
        if run.facts()["games"] != manifest_hash(tasks):
            raise UserError(f"{run.folder} was trained on other games: set ALFWORLD_DATA or --data as it was")
        first = run.restore(policy, optimizer)
    else:
        first = 0
        run = RunLog.create(config, {"games": manifest_hash(tasks), "data": str(env.root), "started_from": str(start)})
        policy.save(run.folder / "start")
    if first == 0:
        run_evaluation(run, config, policy, env, update=0)

    began, fingerprint = time.time(), policy.fingerprint()
    for update in range(first, config.updates):
        metrics = one_update(config, policy, optimizer, env, next_tasks(config, tasks, update), update, run)
        check_sampling(metrics, config.dtype)
        if metrics["grad_norm"] > 0 and metrics["weights"] == fingerprint:
            raise UserError(f"update {update + 1} changed no weight: is --learning-rate {config.learning_rate} too small?")
        fingerprint = metrics["weights"]
        run.write("metrics.jsonl", json.dumps(metrics))
        last = update + 1 == config.updates
        if evaluated := last or (update + 1) % config.eval_every == 0:
            run_evaluation(run, config, policy, env, update + 1)
            run.draw()
        if evaluated or (update + 1) % config.save_every == 0:
            run.save(update + 1, policy, optimizer, keep={run.best()[0]})
        left = (time.time() - began) / (update + 1 - first) * (config.updates - update - 1)
        print(f"update {update + 1}/{config.updates}: {one_line(metrics)}, about {left / 60:.0f} min left", file=sys.stderr)
        for warning in warnings(metrics):
            print(f"  note: {warning}", file=sys.stderr)


def first_policy(config, env) -> Path | None:
    """Where RL starts: Stage 1's result (made now if need be), the base model (None), or a folder."""
    if config.init == "base":
        return None
    if config.init != "auto":
        return Path(config.init)
    # Stage 1 is made once, with seed 0, and shared by the runs of all methods and seeds.
    return stage1(Config(**{**vars(config), "seed": 0}), env)


def next_tasks(config, tasks, update: int) -> list:
    """The tasks of an update: a walk through one shuffled list after another, a function of (seed, update) alone."""
    chosen = []
    for i in range(update * config.tasks_per_update, (update + 1) * config.tasks_per_update):
        epoch, place = divmod(i, len(tasks))
        chosen.append(random.Random(f"{config.seed} epoch {epoch}").sample(tasks, len(tasks))[place])
    return chosen


def one_update(config, policy, optimizer, env, tasks, update: int, run: RunLog) -> dict:
    method, meter, seed = METHODS[config.method], Meter(), f"{config.seed} update {update}"

    # 1. pi_old plays a group of N episodes of each task, with plain contexts. A task that comes twice (there are few) numbers
    #    its episodes on, so that they draw other random numbers.
    episodes = [(task, group, config.group_size * tasks[:group].count(task) + copy)
                for group, task in enumerate(tasks) for copy in range(config.group_size)]
    trajectories, crashed = rollout(policy, env, episodes, seed, **play_options(config, config.temperature))
    for message in crashed:
        print(f"game left out: {message}", file=sys.stderr)
    if not trajectories:
        raise UserError(f"update {update + 1}: none of its {len(tasks)} games could be played; the reasons stand above")
    check_replies(trajectories, update)
    for t in trajectories:
        check_finite((s.reward for s in t.steps), "reward", where(update, t))
        check_finite((x for s in t.steps for x in s.logprobs), "log-prob while sampling", where(update, t))
    meter.lap("rollout")

    # 2. The same weights analyse every finished trajectory: s = A_old(x_tau).
    answers = []
    if method.teacher == "hindsight":
        answers = analyze(policy, trajectories, seed, temperature=config.analyzer_temperature,
                          most_prompt_tokens=config.analyzer_prompt_tokens, most_skill_tokens=config.skill_tokens,
                          batch_tokens=config.sample_tokens)
        check_skills(trajectories, update)
    meter.lap("analysis")

    # 3. A row is one step. Its action ids are scored again under H(h, s) and under the reference, without gradient.
    steps = [(trajectory, step) for trajectory in trajectories for step in trajectory.steps]
    rows = [(step.prompt_ids, step.action_ids) for _, step in steps]
    teacher = score_with_skills(policy, steps, config.batch_tokens) if method.teacher else None
    reference = score(policy, rows, config.batch_tokens, reference=True) if config.kl_coef else None
    # With one optimisation step, ell_old is the ell of its own forward pass.
    old = score(policy, rows, config.batch_tokens) if config.minibatches > 1 else None
    for what, scores in (("teacher's", teacher), ("reference's", reference), ("policy's", old)):
        for (t, _), scored in zip(steps, scores or []):
            check_finite([] if scored is None else scored.tolist(), f"{what} log-prob", where(update, t))
    meter.lap("scoring")

    # 4. A = (R - mu) / (sigma + eps) in each group; the penalty for a malformed reply comes off its own step's score.
    number = {id(trajectory): n for n, trajectory in enumerate(trajectories)}
    advantages_N, scale_N = group_advantages(torch.tensor([t.reward for t in trajectories]),
                                             torch.tensor([t.group for t in trajectories]))
    advantages = step_advantages(advantages_N, scale_N, torch.tensor([number[id(t)] for t, _ in steps]),
                                 torch.tensor([not step.valid for _, step in steps]), config.invalid_penalty)

    # 5. L = L_rl + lambda * L_opd, each the mean over all action tokens of the optimisation step.
    order = list(range(len(rows)))
    if config.minibatches > 1:
        random.Random(seed).shuffle(order)
    size = -(-len(rows) // config.minibatches)
    minibatches = [order[i:i + size] for i in range(0, len(order), size)]
    measure = method.loss is not None and update % config.gradients_every == 0
    for minibatch in minibatches:
        tokens = sum(len(rows[i][1]) for i in minibatch)
        distilled = [torch.zeros_like(p) for p in policy.trainable()] if measure else []
        for part in micro_batches([len(rows[i][0]) + len(rows[i][1]) for i in minibatch], config.batch_tokens):
            batch = [minibatch[i] for i in part]
            pick = lambda scores: [scores[i] for i in batch] if scores else None
            rl, opd = losses(config, policy, pick(rows), [steps[i][1].logprobs for i in batch], advantages[batch], pick(old),
                             pick(reference), pick(teacher), tokens, meter)
            check_finite([rl.item(), opd.item()], "loss", where(update, steps[batch[0]][0]))
            if measure:  # what the distillation alone would do
                grads = torch.autograd.grad(config.opd_coef * opd, policy.trainable(), retain_graph=True)
                distilled = [total + grad for total, grad in zip(distilled, grads)]
            (rl + config.opd_coef * opd).backward()
        if measure:
            meter.sums["gradient_ratio"], meter.sums["gradient_cosine"] = compare_gradients(policy.trainable(), distilled)
            measure = False
        norm = torch.nn.utils.clip_grad_norm_(policy.trainable(), config.grad_clip)
        check_finite([norm.item()], "gradient's norm", f"update {update + 1}")
        meter.add("grad_norm", norm / len(minibatches))
        optimizer.step()
        optimizer.zero_grad()
    meter.lap("learning")

    for trajectory in trajectories:
        run.write("trajectories.jsonl", trajectory.to_json(update=update + 1))
    return {"update": update + 1, **update_metrics(meter, trajectories, answers, crashed, method.teacher is not None),
            "weights": policy.fingerprint()}


def losses(config, policy, rows, sampled, advantages_B, old, reference, teacher, tokens: int, meter: Meter):
    """(L_rl, L_opd) of one micro-batch, as its share of the mean over `tokens` action tokens. `sampled`: recorded log-probs."""
    logp_BL, entropy_BL, mask_BL = action_logprobs(policy, rows)
    pad = lambda scores: pad_sequence(scores, batch_first=True).to(logp_BL.device)
    old_BL = pad(old) if old else logp_BL.detach()
    surrogate_BL, ratio_BL = clipped_surrogate(logp_BL, old_BL, advantages_B.to(logp_BL.device), mask_BL, config.clip_ratio)
    rl = token_mean(surrogate_BL, mask_BL, tokens)
    for name, values_BL in (("tokens", mask_BL), ("rl_loss", surrogate_BL), ("entropy", entropy_BL),
                            ("clipped", ((ratio_BL - 1).abs() > config.clip_ratio) & mask_BL)):
        meter.add(name, values_BL.detach().sum())
    sampled_BL = pad([torch.tensor(logprobs) for logprobs in sampled])
    meter.add("sampling_gap", (sampled_BL - old_BL).abs().sum())
    if reference:
        kl_BL = kl_k3(logp_BL, pad(reference), mask_BL)
        rl = rl + config.kl_coef * token_mean(kl_BL, mask_BL, tokens)
        meter.add("kl", kl_BL.detach().sum())
    opd = 0.0 * rl
    if teacher:
        # m: the action tokens of trajectories with a usable skill; the others have no teacher (None).
        taught_B = torch.tensor([scores is not None for scores in teacher], device=logp_BL.device)
        teacher_BL = pad([torch.zeros(len(action)) if scores is None else scores for scores, (_, action) in zip(teacher, rows)])
        opd_BL, seen = METHODS[config.method].loss(logp_BL, teacher_BL, mask_BL & taught_B[:, None], config.gate_beta)
        opd = token_mean(opd_BL, mask_BL, tokens)
        meter.add("opd_loss", opd_BL.detach().sum())
        meter.add_distillation(seen["delta"], seen["gate"])
    return rl, opd


def where(update: int, trajectory) -> str:
    return f"update {update + 1}, {trajectory.task.id}, episode {trajectory.copy}"


def score_with_skills(policy, steps, batch_tokens: int) -> list:
    """ell_skill = log pi_theta(a_l | H(h, s), a_<l) for the steps of trajectories with a usable skill, None for the others."""
    taught = [i for i, (trajectory, _) in enumerate(steps) if trajectory.skill is not None]
    rows = [(policy.encode_context(H(step.context, trajectory.skill)), step.action_ids)
            for trajectory, step in (steps[i] for i in taught)]
    if taught and all(prompt == steps[i][1].prompt_ids for i, (prompt, _) in zip(taught, rows)):
        raise UserError("in a whole update no skill reached the teacher: its prompts equal the student's")
    scores = [None] * len(steps)
    for i, scored in zip(taught, score(policy, rows, batch_tokens)):
        scores[i] = scored
    return scores


def run_evaluation(run, config, policy, env, update: int) -> None:
    """Play the fixed list, always the same games, with the plain policy."""
    split = config.eval_split
    if split not in env.splits():  # published data can be had without it
        split = "valid_unseen"
        print(f"no split {config.eval_split} in the data: evaluating on {split}", file=sys.stderr)
    result = evaluate(policy, env, env.tasks(split)[:config.eval_episodes], config)
    run.write("evaluations.jsonl", json.dumps({"update": update, "split": split, **result}))
    print(f"update {update}: {result['wins']} of {result['games']} {split} games won = {result['success']:.1%} "
          f"[{result['low']:.1%}, {result['high']:.1%}], {result['mean_turns']:.1f} turns, {result['malformed']:.1%} malformed",
          file=sys.stderr)


if __name__ == "__main__":
    main()
