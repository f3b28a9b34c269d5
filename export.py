"""Export a trained policy as one plain bfloat16 model for serving: the adapter merged into unquantised base weights.

    python export.py --run runs/alfworld-qwen2.5-3b-seed-seed0 --out served/my-model

Not in the paper. Training never merges: an adapter learned on 4-bit weights, merged into them, would be rounded away, and
merged into the unquantised ones it meets slightly other weights than it was trained on. How much that matters is measured here:
the difference of log-probs on actions of the run itself, between the policy that was trained and the exported model.
"""
import os
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is loaded: idle threads sleep instead of spinning
import gc
import sys
from dataclasses import replace
from pathlib import Path

import torch

from seed.commandline import Parser
from seed.config import load_config
from seed.errors import UserError, exit_cleanly
from seed.memory import micro_batch_tokens
from seed.policy import Policy, load_policy, model_class
from seed.rescore import score
from seed.runlog import RunLog, read_lines
from seed.trajectory import Trajectory

STEPS = 64  # actions of the run that the two models are compared on


@exit_cleanly
def main():
    parser = Parser(__doc__)
    parser.add_argument("--run", required=True, help="run folder of train_seed.py")
    parser.add_argument("--out", required=True, type=Path, help="folder for the model, a new one")
    args = parser.parse_args()
    config, log = load_config(Path(args.run) / "config.json"), RunLog(args.run)
    if not log.checkpoints():
        raise UserError(f"{args.run} has no checkpoint yet")
    if args.out.exists():
        raise UserError(f"{args.out} exists: give a new folder")
    folder = log.policy_folder(log.checkpoints()[-1])

    trained = load_policy(config, folder)
    recorded = [Trajectory.from_json(line) for line in read_lines(log.folder / "trajectories.jsonl")[-STEPS:]]
    steps = [step for trajectory in recorded for step in trajectory.steps][:STEPS]
    rows = [(trained.encode_context(step.context), step.action_ids) for step in steps]
    tokens = micro_batch_tokens(trained, config.batch_tokens)
    before = torch.cat(score(trained, rows, tokens)).cpu()
    identity, tokenizer, eyes = trained.identity, trained.tokenizer, trained.eyes
    del trained
    gc.collect()  # 4-bit layers and their weights refer to each other
    torch.cuda.empty_cache()

    model = load_policy(replace(config, quantize=False, gradient_checkpointing=False), folder, identity).model
    if config.lora_rank:
        model = model.merge_and_unload()
    device = model.device
    model.to(torch.bfloat16).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    if eyes:
        eyes.processor.save_pretrained(args.out)
    del model
    # Compared is what a server will load.
    served = model_class(config).from_pretrained(args.out, dtype=torch.bfloat16).to(device)
    after = torch.cat(score(Policy(served, tokenizer, {**identity, "lora_rank": 0}, eyes), rows, tokens)).cpu()
    gap = (after.float() - before.float()).abs()
    print(f"{args.out}: bfloat16, merged; log-probs of {len(gap)} action tokens differ from the trained policy's by "
          f"{gap.mean():.4f} on average, {gap.max():.3f} at most", file=sys.stderr)


if __name__ == "__main__":
    main()
