"""Stage 1, hindsight-skill fine-tuning: play, annotate, fine-tune.

    python train_sft.py --env alfworld
    python train_sft.py --env alfworld --annotator policy --tasks 64 --rollouts 4 --epochs 3 --out runs/my-sft

In the paper: Stage 1. The base policy plays K0 rollouts of each of M training tasks without any skill; an annotator
writes a hindsight skill for each finished trajectory; the well-formed ones are D_sft; the policy is fine-tuned on the skill
JSON alone:  L_sft = - E_(x,s) sum_l log pi_theta(s_l | x, s_<l),  x the analyzer's prompt. The result starts Stage 2, as
actor and as analyzer. `train_seed.py` runs this by itself where its result is not there yet.

The folder it writes: trajectories.jsonl (what was played), sft.jsonl (prompt and answer of each kept skill), sft.json
(counts, reasons, hash of the data, losses), policy/ (the result). Interrupted, it goes on with --resume: what was played is
kept, and what an endpoint has answered.

How it differs from the paper:
1. The annotator need not be an external model (`seed/annotators.py`); the tiny preset's is a set of rules.
2. The answer is trained on in one canonical form (compact JSON, the two fields in order), however the annotator wrote it.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import hashlib
import json
import random
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from seed.analyzer import answer_json, fit_prompt
from seed.annotators import annotate, check_annotator
from seed.config import Config, parse
from seed.envs import open_env
from seed.errors import UserError, exit_cleanly, go_on_with
from seed.evaluation import play_options, summarise
from seed.memory import micro_batch_tokens, with_less_if_needed
from seed.policy import load_policy
from seed.rescore import action_logprobs, micro_batches
from seed.rollout import rollout
from seed.runlog import append_line, read_lines
from seed.trajectory import Trajectory, manifest_hash

# What the result of Stage 1 depends on, besides the games and the base weights.
MATTERS = ("env", "preset", "model", "dtype", "quantize", "lora_rank", "max_turns", "history_length", "temperature",
           "max_prompt_tokens", "max_reply_tokens", "vision", "analyzer_prompt_tokens", "analyzer_temperature", "skill_tokens",
           "sft_tasks", "sft_rollouts", "sft_epochs", "sft_batch", "sft_learning_rate", "weight_decay", "grad_clip", "annotator",
           "seed")


def stage1(config: Config, env, out: Path | None = None) -> Path:
    """Run Stage 1, or what is left of it, in `out`; returns the folder of the resulting policy.

    The default folder is named by a hash of all that the result depends on: another setting is another folder.
    """
    check_annotator(config)
    policy = load_policy(config)
    tasks = env.tasks("train")
    settings = {name: getattr(config, name) for name in MATTERS}
    settings |= {"model": policy.identity["model"], "games": manifest_hash(tasks), "data": env.root.name,
                 "weights": None if policy.lora else policy.fingerprint()}
    if config.annotator == "openai":
        settings |= {name: os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_MODEL")}
    out = out or Path(f"runs/sft-{config.env}-{config.preset}-{digest(json.dumps(settings))[:8]}")
    if (out / "policy").exists():
        print(f"Stage 1: {out} is there already", file=sys.stderr)
        return out / "policy"
    stored = out / "settings.json"
    if stored.exists() and json.loads(stored.read_text()) != settings:
        raise UserError(f"{out} holds an unfinished Stage 1 with other settings: give another --out or delete it")
    out.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps(settings, indent=2))

    trajectories = play(config, env, policy, tasks, out / "trajectories.jsonl")
    annotations = annotate(trajectories, policy, config, out / "annotations.jsonl")
    data = [(fit_prompt(t, policy.encode, config.analyzer_prompt_tokens), answer_json(summary, skill))
            for t, (summary, skill, error) in zip(trajectories, annotations) if error is None]
    data = [(question, answer) for question, answer in data if question is not None]
    if not data:
        reasons = Counter(error for _, _, error in annotations).most_common(3)
        raise UserError(f"Stage 1: none of {len(annotations)} annotations is a well-formed skill ({reasons}): try another "
                        f"--annotator, or start RL without Stage 1 (--init base)")
    lines = [json.dumps({"prompt": text, "answer": answer}, ensure_ascii=False) for (text, _), answer in data]
    (out / "sft.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    losses = fine_tune(config, policy, data)
    played = summarise(trajectories)
    report = {"tasks": len({t.task.id for t in trajectories}), "trajectories": len(trajectories), "kept": len(data),
              "dropped": Counter(error for _, _, error in annotations if error), "data_hash": digest("\n".join(lines))[:12],
              "base_success": {key: played[key] for key in ("wins", "games", "success", "low", "high")},
              "loss_by_epoch": losses, "annotator": config.annotator, "config": asdict(config)}
    (out / "sft.json").write_text(json.dumps(report, indent=2))
    policy.save(out / "unfinished")
    os.replace(out / "unfinished", out / "policy")
    print(f"Stage 1: {report['trajectories']} trajectories of {report['tasks']} tasks ({played['success']:.0%} won), "
          f"{len(data)} skills kept, data {report['data_hash']}, loss a skill {losses[0]:.1f} -> {losses[-1]:.1f}; "
          f"policy in {out / 'policy'}", file=sys.stderr)
    return out / "policy"


def play(config, env, policy, tasks, path: Path) -> list[Trajectory]:
    """M tasks, drawn by the seed, K0 rollouts each; trajectories that are in the file already are not played again."""
    chosen = random.Random(f"{config.seed} stage 1").sample(tasks, min(config.sft_tasks, len(tasks)))
    done = [Trajectory.from_json(line) for line in read_lines(path)]
    known = {(t.task.id, t.copy) for t in done}
    left = [(task, i, copy) for i, task in enumerate(chosen) for copy in range(config.sft_rollouts)
            if (task.id, copy) not in known]
    for start in tqdm(range(0, len(left), env.slots), desc="Stage 1: playing", disable=None):
        played, crashed = rollout(policy, env, left[start:start + env.slots], f"stage 1, seed {config.seed}",
                                  **play_options(config, config.temperature))
        for trajectory in played:
            append_line(path, trajectory.to_json())
        for message in crashed:
            print(f"game left out: {message}", file=sys.stderr)
        done += played
    if not done:
        raise UserError(f"Stage 1: none of the {len(chosen)} games could be played; the reasons stand above")
    return done


def fine_tune(config, policy, data) -> list[float]:
    """Train on the answers alone; returns the mean loss of a skill (its summed negative log-prob) for each epoch."""
    end = policy.tokenizer.eos_token_id
    config.batch_tokens = micro_batch_tokens(policy, config.batch_tokens)
    rows = [(policy.encode(*question), policy.tokenizer.encode(answer, add_special_tokens=False) + [end])
            for question, answer in data]
    optimizer = torch.optim.AdamW(policy.trainable(), lr=config.sft_learning_rate, weight_decay=config.weight_decay)
    steps = config.sft_epochs * -(-len(rows) // config.sft_batch)
    bar, losses = tqdm(total=steps, desc="Stage 1: fine-tuning", disable=None), []
    for epoch in range(config.sft_epochs):
        order = random.Random(f"{config.seed} epoch {epoch}").sample(range(len(rows)), len(rows))
        total = 0.0
        for start in range(0, len(rows), config.sft_batch):
            done = epoch / config.sft_epochs + start / len(rows) / config.sft_epochs
            batch = [rows[i] for i in order[start:start + config.sft_batch]]
            total += with_less_if_needed(config, lambda: accumulate(policy, batch, config.batch_tokens), optimizer.zero_grad)
            if not total < float("inf"):
                raise UserError(f"Stage 1: the loss is not finite in epoch {epoch + 1}, step {start // config.sft_batch + 1}: "
                                f"try a smaller --learning-rate")
            torch.nn.utils.clip_grad_norm_(policy.trainable(), config.grad_clip)
            for group in optimizer.param_groups:  # linear to 0
                group["lr"] = config.sft_learning_rate * (1 - done)
            optimizer.step()
            optimizer.zero_grad()
            bar.update()
        losses.append(total / len(rows))
    bar.close()
    return losses


def accumulate(policy, batch, batch_tokens: int) -> float:
    """Gradients of the mean loss of a skill over `batch`; returns the sum of the losses."""
    total = 0.0
    for micro in micro_batches([len(p) + len(a) for p, a in batch], batch_tokens):
        logp_BL, _, _ = action_logprobs(policy, [batch[i] for i in micro])
        loss = -logp_BL.sum() / len(batch)  # padding counts 0
        loss.backward()
        total += loss.item() * len(batch)
    return total


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@exit_cleanly
def main():
    config, given = parse(__doc__, stage1=True)
    out = Path(config.out) if "out" in given else None
    if out:
        go_on_with(" ".join(["python", *sys.argv, *["--resume"] * (not config.resume)]))
    if out and out.exists() and not config.resume:
        raise UserError(f"{out} exists: add --resume to go on with it, or give another --out")
    stage1(config, open_env(config), out)


if __name__ == "__main__":
    main()
