"""One update: play, analyse, re-score, learn.

In the paper: Stage 2, one pass of its loop. The names are the paper's (sg[x]: x without gradient):

    trajectories  ~  pi_old, N for each task, plain contexts h
    s             =  A_old(x_tau), the same weights, for every finished trajectory
    ell, ell_skill   of the very tokens that were sampled, under h and under H(h, s)
    L_seed        =  L_rl + lambda * L_opd,   each the mean over all action tokens of the optimisation step

All of it is done with one set of weights: pi_old is pi_theta as it is when the update begins, and plays, analyses and teaches.
Updates are numbered from 0 inside the code and from 1 in what is printed and written.

Shapes: N trajectories of the update, B rows of a micro-batch (a row is one step), L action tokens of its longest reply.

How it differs from the paper:
1. The teacher's ell_skill is that of pi_old, scored once an update, and stays for all optimisation steps of the update
   (--minibatches; the authors' run files take about 7).
2. ell_old is scored only where it has to be. In the first optimisation step it is that step's own ell, detached, and every ratio
   is exactly 1. For the later ones it is, in float32, what was recorded while sampling: the same up to rounding, as `sampling_gap`
   checks in every update. In half precision sampling and scoring round differently, and a pass of its own keeps that out of the ratio.
3. Every sampled token follows from (seed, update, task, copy, step): a run can be interrupted and goes on bitwise equal
   (tested on the CPU in float32).
"""
import random
import sys
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

from seed import distributed
from seed.analyzer import analyze
from seed.augment import H
from seed.envs import expert
from seed.errors import UserError, check_finite
from seed.evaluation import play_options
from seed.grpo import clipped_surrogate, group_advantages, kl_k3, step_advantages, token_mean
from seed.memory import with_less_if_needed
from seed.methods import METHODS
from seed.metrics import Meter, check_replies, check_skills, compare_gradients, update_metrics
from seed.rescore import action_logprobs, micro_batches, progress, score
from seed.rollout import rollout
from seed.trajectory import Step, Trajectory


def one_update(config, policy, optimizer, env, tasks, update: int, library=None) -> tuple[dict, list]:
    """Update `policy` in place. Returns the update's metrics and its trajectories (those of all processes). `library`: the skills
    of a method that acts or teaches with one."""
    method, meter, seed = METHODS[config.method], Meter(), f"{config.seed} update {update}"

    # 1. pi_old plays a group of N episodes of each task, with plain contexts. A task that comes twice (there are few) numbers
    #    its episodes on, so that they draw other random numbers. Of several processes, each plays its own groups.
    episodes = [(task, group, config.group_size * tasks[:group].count(task) + copy)
                for group, task in enumerate(tasks) if group % distributed.world() == distributed.rank()
                for copy in range(config.group_size)]
    trajectories, crashed = rollout(policy, env, episodes, seed, library=library if method.acts_with else None,
                                    **play_options(config, config.temperature))
    crashed = distributed.gather(crashed)
    for message in crashed:
        print(f"game left out: {message}", file=sys.stderr)
    for t in trajectories:
        check_finite((s.reward for s in t.steps), "reward", where(update, t))
        check_finite((x for s in t.steps for x in s.logprobs), "log-prob while sampling", where(update, t))
    meter.lap("rollout")

    # 2. The same weights analyse every finished trajectory: s = A_old(x_tau). A teacher may see a library's skill instead.
    answers = []
    if method.teacher in ("hindsight", "grown", "other"):
        answers = analyze(policy, trajectories, seed, temperature=config.analyzer_temperature,
                          most_prompt_tokens=config.analyzer_prompt_tokens, most_skill_tokens=config.skill_tokens,
                          batch_tokens=config.sample_tokens)
    elif method.teacher in ("expert", "workflow"):
        for t in trajectories:
            t.summary, t.skill = expert(env.name).hindsight(t, name_places=method.teacher == "expert") or (None, None)
    everyones = distributed.gather(trajectories)
    if not everyones:
        raise UserError(f"update {update + 1}: none of its {len(tasks)} games could be played; the reasons stand above")
    check_replies(everyones, update)
    if method.teacher:
        if method.teacher == "grown":
            library.grow(everyones, update)
        ordered = sorted(everyones, key=lambda t: (t.group, t.copy))
        skills = {(t.group, t.copy): library.skill(t.task) if library else t.skill for t in ordered}
        if method.teacher == "other":   # one group further
            skills = dict(zip(skills, list(skills.values())[config.group_size:] + list(skills.values())[:config.group_size]))
        for t in (*trajectories, *everyones):
            t.taught = skills[t.group, t.copy]
        check_skills(everyones, update)
    meter.lap("analysis")

    # 3. A row is one step. Its action ids are scored again under H(h, s) and under the reference, without gradient.
    rows = [Row(trajectory, step) for trajectory in trajectories for step in trajectory.steps]
    if config.minibatches > 1:
        random.Random(seed).shuffle(rows)
    minibatches = [rows[k::config.minibatches] for k in range(config.minibatches)]
    with_less_if_needed(config, lambda: rescore_rows(config, policy, minibatches, update))
    meter.lap("scoring")

    # 4. A = (R - mu) / (sigma + eps) in each group; the penalty for a malformed reply comes off its own step's score.
    number = {id(trajectory): n for n, trajectory in enumerate(trajectories)}
    advantages_N, scale_N = group_advantages(torch.tensor([t.reward for t in trajectories]),
                                             torch.tensor([t.group for t in trajectories], dtype=torch.long))
    advantages = step_advantages(advantages_N, scale_N, torch.tensor([number[id(row.trajectory)] for row in rows], dtype=torch.long),
                                 torch.tensor([not row.step.valid for row in rows], dtype=torch.bool), config.invalid_penalty)
    for row, advantage in zip(rows, advantages.tolist()):
        row.advantage = advantage

    # 5. L = L_rl + lambda * L_opd, in one optimisation step or several.
    measured, norms = {}, []
    for k, minibatch in enumerate(minibatches):
        sums = dict(meter.sums)
        tokens = distributed.add_up_by_name({"tokens": sum(len(row.step.action_ids) for row in minibatch)})["tokens"]
        measure = method.loss is not None and method.reward and update % config.gradients_every == 0 and k == 0

        def undo():
            optimizer.zero_grad()
            meter.sums.clear()
            meter.sums.update(sums)

        distilled = with_less_if_needed(config, lambda: accumulate(config, policy, minibatch, tokens, update, meter, measure), undo)
        distributed.add_up([p.grad for p in policy.trainable()])
        if measure:
            distributed.add_up(distilled)
            measured = dict(zip(("gradient_ratio", "gradient_cosine"), compare_gradients(policy.trainable(), distilled)))
        norms.append(torch.nn.utils.clip_grad_norm_(policy.trainable(), config.grad_clip).item())
        check_finite(norms, "gradient's norm", f"update {update + 1}")
        optimizer.step()
        optimizer.zero_grad()
    meter.lap("learning")

    meter.sums = distributed.add_up_by_name(meter.sums) | measured | {"grad_norm": sum(norms) / len(norms)}
    everyones.sort(key=lambda t: (t.group, t.copy))
    metrics = update_metrics(meter, everyones, distributed.gather(answers), crashed, method.teacher is not None)
    return {"update": update + 1, **metrics, "weights": policy.fingerprint()}, everyones


@dataclass
class Row:
    """One step and what it is learned from."""
    trajectory: Trajectory
    step: Step
    advantage: float = 0.0
    teacher: torch.Tensor | None = None      # ell_skill; None: no usable skill, m = 0
    reference: torch.Tensor | None = None    # ell under the policy that RL started from
    old: torch.Tensor | None = None          # ell under pi_old; None in the first optimisation step, see the module's head

    @property
    def ids(self) -> tuple[list[int], list[int]]:
        return self.step.prompt_ids, self.step.action_ids


def rescore_rows(config, policy, minibatches: list[list[Row]], update: int) -> None:
    """The same action ids under other contexts and other weights."""
    rows, later = sum(minibatches, []), sum(minibatches[1:], [])

    def fill(name, rows, prompts, **options):
        scores = score(policy, [(prompt, row.step.action_ids) for prompt, row in zip(prompts, rows)], config.batch_tokens, **options)
        for row, scored in zip(rows, scores):
            setattr(row, name, scored)
            check_finite(scored.tolist(), f"{name} log-prob", where(update, row.trajectory))

    if METHODS[config.method].teacher:
        # ell_skill = log pi_theta(a_l | H(h, s), a_<l)
        taught = [row for row in rows if row.trajectory.taught is not None]
        prompts = [policy.encode_context(H(row.step.context, row.trajectory.taught)) for row in taught]
        if taught and all(prompt == row.step.prompt_ids for prompt, row in zip(prompts, taught)):
            raise UserError("in a whole update no skill reached the teacher: its prompts equal the student's")
        fill("teacher", taught, prompts)
    if config.kl_coef and METHODS[config.method].reward:
        fill("reference", rows, [row.step.prompt_ids for row in rows], reference=True)
    if config.dtype == "float32":
        for row in later:
            row.old = torch.tensor(row.step.logprobs)
    else:
        fill("old", later, [row.step.prompt_ids for row in later])


def accumulate(config, policy, rows: list[Row], tokens: float, update: int, meter: Meter, measure: bool) -> list[torch.Tensor]:
    """Gradients of L over `rows`, micro-batch by micro-batch; `tokens`: the action tokens of the whole optimisation step. Returns
    the gradients of lambda L_opd alone, if they are to be measured (one more forward and backward pass)."""
    parameters, weight = policy.trainable(), config.opd_coef if METHODS[config.method].reward else 1.0
    for p in parameters:
        p.grad = torch.zeros_like(p)
    distilled = [torch.zeros_like(p) for p in parameters] if measure else []
    for part in progress(micro_batches([sum(map(len, row.ids)) for row in rows], config.batch_tokens), "learning"):
        batch = [rows[i] for i in part]
        if measure:  # in passes of its own: a graph kept for two backward passes would keep what checkpointing is to forget
            _, opd = objective(config, policy, batch, tokens, Meter())
            distilled = [total + grad for total, grad in zip(distilled, torch.autograd.grad(weight * opd, parameters))]
        rl, opd = objective(config, policy, batch, tokens, meter)
        check_finite([rl.item(), opd.item()], "loss", where(update, batch[0].trajectory))
        (rl + weight * opd).backward()
    return distilled


def objective(config, policy, rows: list[Row], tokens: float, meter: Meter):
    """(L_rl, L_opd) of one micro-batch, as its share of the mean over the optimisation step's `tokens` action tokens."""
    method = METHODS[config.method]
    logp_BL, entropy_BL, mask_BL = action_logprobs(policy, [row.ids for row in rows])
    pad = lambda scores: pad_sequence(scores, batch_first=True).to(logp_BL.device)
    sampled_BL = pad([torch.tensor(row.step.logprobs) for row in rows])
    if rows[0].old is None:  # the first optimisation step: the weights are still those that played
        old_BL = logp_BL.detach()
        meter.add("first_tokens", mask_BL.sum())
        meter.add("sampling_gap", (sampled_BL - old_BL).abs().sum())
    else:
        old_BL = pad([row.old for row in rows])
    advantages = torch.tensor([row.advantage for row in rows], device=logp_BL.device)
    if method.teacher:
        # m: the action tokens of trajectories with a usable skill; the others have no teacher.
        taught_BL = mask_BL & torch.tensor([[row.teacher is not None] for row in rows], device=logp_BL.device)
        teacher_BL = pad([logp_BL.new_zeros(len(row.step.action_ids)) if row.teacher is None else row.teacher for row in rows])
    if method.credit:
        advantages, seen = method.credit(advantages, logp_BL, teacher_BL, taught_BL)
        meter.add_distillation(**seen)
    surrogate_BL, ratio_BL = clipped_surrogate(logp_BL, old_BL, advantages, mask_BL, config.clip_ratio)
    rl = token_mean(surrogate_BL, mask_BL, tokens)
    for name, values_BL in (("tokens", mask_BL), ("rl_loss", surrogate_BL), ("entropy", entropy_BL),
                            ("clipped", ((ratio_BL - 1).abs() > config.clip_ratio) & mask_BL)):
        meter.add(name, values_BL.detach().sum())
    if config.kl_coef and method.reward:
        kl_BL = kl_k3(logp_BL, pad([row.reference for row in rows]), mask_BL)
        rl = rl + config.kl_coef * token_mean(kl_BL, mask_BL, tokens)
        meter.add("kl", kl_BL.detach().sum())
    opd = 0.0 * rl  # a method without one: still a tensor with a gradient, of 0
    if method.loss:
        opd_BL, seen = method.loss(logp_BL, teacher_BL, taught_BL, config.gate_beta, old_BL)
        opd = token_mean(opd_BL, mask_BL, tokens)
        meter.add("opd_loss", opd_BL.detach().sum())
        meter.add_distillation(**seen)
    return rl if method.reward else 0.0 * rl, opd


def where(update: int, trajectory) -> str:
    return f"update {update + 1}, {trajectory.task.id}, episode {trajectory.copy}"
