"""Every knob once: its default, one line of meaning, and the paper's value.

A value comes from the dataclass below, then the preset, then the command line. `--help` prints this file's lines. The
paper's values are those of its ALFWorld runs (their configuration is published) unless a line says otherwise.
"""
import argparse
import json
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from seed.commandline import Parser
from seed.errors import UserError
from seed.methods import METHODS

# The paper's settings where they are others than ALFWorld's, which the dataclass has.
ENVIRONMENTS = {
    "alfworld": {},
    "webshop": dict(max_turns=15, history_length=2, max_prompt_tokens=4096),
    "search": dict(max_turns=4, history_length=4, max_prompt_tokens=4096, invalid_penalty=0.01, kl_coef=0.001, tasks_per_update=128),
    "sokoban": dict(max_turns=15, history_length=2, max_prompt_tokens=1024, tasks_per_update=32),
    "ezpoints": dict(max_turns=8, history_length=0, max_prompt_tokens=1024),
}


VISUAL = ("sokoban", "ezpoints")  # those with pictures


def knob(default, meaning: str, paper: str = "", choices=None):
    return field(default=default, metadata={"meaning": meaning, "paper": paper, "choices": choices})


@dataclass
class Config:
    # --- what to run
    env: str = knob("alfworld", "environment", choices=tuple(ENVIRONMENTS))
    preset: str = knob("auto", "model and sizes: tiny, smollm2-135m, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen3-1.7b, qwen2.5-vl-3b (auto: qwen2.5-3b on a "
                       "CUDA device, else tiny)")
    method: str = knob("seed", "objective", choices=tuple(METHODS))
    init: str = knob("auto", "start of RL: auto (Stage 1's result, made first where there is none), base, or a folder", "Stage 1")
    updates: int = knob(150, "RL updates", "150")
    seed: int = knob(0, "seed of task order and sampling (made games and Stage 1 have their own, always the same)")
    out: str = knob("", "run folder (default: runs/ENV-PRESET-METHOD-seedSEED)")
    resume: bool = knob(False, "go on from the last checkpoint of the run folder")
    # --- games
    data: str = knob("auto", "games: auto (the downloaded data where there is any, else made), made, or a data folder")
    train_fraction: float = knob(1.0, "share of the training tasks that RL trains on (Stage 1 has its own share)", "0.2 to 1.0 (Figure 4)")
    train_games: int = knob(160, "made games: how many to train on", "3,553 published ones")
    seen_games: int = knob(200, "made games: held out, layouts of training", "140 published ones")
    unseen_games: int = knob(200, "made games: held out, layouts never trained on", "134 published ones")
    households: str = knob("4-6x4-7", "ALFWorld's made games: receptacles x objects, each drawn from its range")
    rooms: str = knob("6x6-1", "Sokoban's made levels: rows x columns - boxes", "6x6-1")
    # --- model
    model: str = knob("", "hub id or folder of a causal language model with a chat template")
    dtype: str = knob("float32", "number format of weights and computation (auto: bfloat16 where the GPU has it, else float32); "
                      "all weights are trained in float32 only", "bfloat16", ("auto", "float32", "bfloat16"))
    quantize: bool = knob(False, "4-bit weights (NF4), for LoRA", "no")
    lora_rank: int = knob(0, "LoRA rank; 0: all weights are trained", "all weights")
    gradient_checkpointing: bool = knob(False, "keep each layer's input only and compute the rest again in the backward pass", "yes")
    vision: bool = knob(False, "Sokoban and EZPoints: the agent sees pictures (needs a vision-language model)", "yes, with Qwen2.5-VL-3B")
    # --- playing
    tasks_per_update: int = knob(16, "tasks an update", "16")
    group_size: int = knob(8, "N, trajectories a task", "8")
    max_turns: int = knob(50, "steps after which an episode has failed", "50")
    history_length: int = knob(5, "observations and actions shown in the prompt", "5 (2 in earlier work)")
    temperature: float = knob(1.0, "sampling temperature of rollouts (log-probs are always the policy's own, at 1)", "1.0")
    max_prompt_tokens: int = knob(2048, "history is left out, oldest first, where a prompt is longer", "2048")
    max_reply_tokens: int = knob(512, "a reply is cut here", "512")
    invalid_penalty: float = knob(0.1, "taken off a step's score for a malformed reply", "0.1")
    # --- analysis
    analyzer_prompt_tokens: int = knob(8192, "trajectories are shortened in the middle where the prompt is longer")
    analyzer_temperature: float = knob(0.4, "sampling temperature of analyses")
    skill_tokens: int = knob(512, "an analysis is cut here and then not used")
    # --- objective
    clip_ratio: float = knob(0.2, "PPO clip", "0.2")
    kl_coef: float = knob(0.01, "weight of the KL to the policy at the start of RL", "0.01")
    opd_coef: float = knob(0.01, "lambda, weight of the distillation loss", "0.01")
    gate_beta: float = knob(5.0, "beta, sharpness of the gate", "5.0")
    # --- optimisation
    learning_rate: float = knob(1e-6, "AdamW, constant", "1e-6")
    weight_decay: float = knob(0.01, "AdamW", "0.01")
    grad_clip: float = knob(1.0, "the gradient's norm is clipped here", "1.0")
    minibatches: int = knob(7, "optimisation steps an update; its rows are split among them", "about 7, of 256 rows")
    batch_tokens: int = knob(0, "tokens in a training micro-batch, padding included (0: as many as fit, measured at the start)")
    sample_tokens: int = knob(131072, "tokens in a sampling batch, padding and replies included")
    # --- Stage 1
    sft_tasks: int = knob(180, "M, training tasks played", "180")
    sft_rollouts: int = knob(8, "K0, rollouts a task", "8")
    sft_epochs: int = knob(3, "passes over the skills", "3")
    sft_batch: int = knob(16, "skills an optimisation step")
    sft_learning_rate: float = knob(1e-5, "AdamW, linear to 0")
    annotator: str = knob("policy", "who writes the skills: policy (the base model itself), openai (an endpoint), expert (rules)",
                          "an external model", ("policy", "openai", "expert"))
    # --- evaluation during training, logging
    eval_every: int = knob(5, "updates between evaluations; the first and the last state are always evaluated", "5")
    eval_split: str = knob("valid_seen", "split of these evaluations", "valid_seen", ("valid_seen", "valid_unseen"))
    eval_episodes: int = knob(128, "games of these evaluations, evenly spread over the sorted list", "128, drawn at random")
    eval_temperature: float = knob(0.4, "sampling temperature of evaluations", "0.4")
    save_every: int = knob(1, "updates between checkpoints")
    gradients_every: int = knob(5, "updates between measurements of |lambda grad L_opd| / |grad L_rl| (costs one more forward and backward pass)")


TINY_MODELS = Path(__file__).parent / "tiny_models"   # one for each environment; --model tiny stands for that of --env
# LoRA on all linear layers, alpha = 2 * rank. Its learning rate is not the paper's 1e-6 for all weights: an update B A of low
# rank starts at B = 0 and has few numbers to move, and wants 10 to 50 times the rate of full fine-tuning.
LORA = dict(dtype="auto", quantize=True, lora_rank=32, gradient_checkpointing=True, learning_rate=2e-5, sft_learning_rate=1e-4)
PRESETS = {
    # A model of a million parameters and small households: minutes on two CPU cores. See seed/tiny.py. lambda: at 0.1 the
    # distillation's gradient has about 0.15 of the length of GRPO's (`gradient_ratio` in results/alfworld_tiny.json), so at the
    # paper's 0.01 it would have 0.015.
    "tiny": dict(model="tiny", dtype="float32", updates=12, max_reply_tokens=24,
                 analyzer_prompt_tokens=1024, skill_tokens=80, opd_coef=0.1, learning_rate=2e-4, minibatches=4, batch_tokens=4096, sft_tasks=32,
                 sft_rollouts=4, sft_learning_rate=3e-4, annotator="expert", eval_every=4, eval_episodes=200, gradients_every=4),
    "smollm2-135m": dict(model="HuggingFaceTB/SmolLM2-135M-Instruct", **LORA),
    "qwen2.5-1.5b": dict(model="Qwen/Qwen2.5-1.5B-Instruct", **LORA),
    "qwen2.5-3b": dict(model="Qwen/Qwen2.5-3B-Instruct", **LORA),
    "qwen2.5-7b": dict(model="Qwen/Qwen2.5-7B-Instruct", **LORA),
    "qwen3-1.7b": dict(model="Qwen/Qwen3-1.7B", **LORA),
    "qwen2.5-vl-3b": dict(model="Qwen/Qwen2.5-VL-3B-Instruct", vision=True, **LORA),
}


# The tiny preset's games are small, and so are its replies.
TINY_ENVIRONMENTS = {
    "alfworld": dict(max_turns=15),
    "webshop": dict(history_length=1, max_reply_tokens=48, analyzer_prompt_tokens=2048),
    "search": dict(tasks_per_update=16, max_reply_tokens=48),
    "sokoban": dict(tasks_per_update=16),
    "ezpoints": dict(seen_games=80, unseen_games=64),   # there are no more deals
}


def settings(env: str, preset: str) -> dict:
    """What environment and preset bring, the later over the earlier."""
    return {**ENVIRONMENTS[env], **PRESETS[preset], **(TINY_ENVIRONMENTS[env] if preset == "tiny" else {})}


def parse(doc: str, stage1: bool = False, arguments: list[str] | None = None) -> tuple[Config, set[str]]:
    """(config, the names of the options that the command line gave). `stage1`: --tasks stands for --sft-tasks, and so on."""
    check_python()
    parser = Parser(doc)
    for knob_ in fields(Config):
        flag = "--" + (knob_.name.removeprefix("sft_") if stage1 else knob_.name).replace("_", "-")
        meta = knob_.metadata
        tiny = settings("alfworld", "tiny").get(knob_.name, knob_.default)
        own = f"; tiny: {tiny}" if tiny != knob_.default else ""
        help_ = f"{meta['meaning']} [{knob_.default}{own}]" + (f" (paper: {meta['paper']})" if meta["paper"] else "")
        options = dict(dest=knob_.name, default=argparse.SUPPRESS, help=help_.replace("%", "%%"))
        if knob_.type is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        elif not any(flag in action.option_strings for action in parser._actions):
            parser.add_argument(flag, type=knob_.type, choices=meta["choices"], **options)
    given = vars(parser.parse_args(arguments))
    return make_config(given), set(given)


def make_config(given: dict) -> Config:
    """The configuration for these options: the preset's values under them. UserError where they cannot be."""
    import torch
    preset = given.get("preset", "auto")
    if preset == "auto":
        preset = "qwen2.5-3b" if torch.cuda.is_available() else "tiny"
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset}: choose one of {', '.join(PRESETS)}")
    config = Config(**{**settings(given.get("env", "alfworld"), preset), **given, "preset": preset})
    if config.dtype == "auto":  # on a CPU, training in bfloat16 is many times slower than in float32
        config.dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
    for names, holds, expected in (
            ("updates tasks_per_update group_size max_turns max_prompt_tokens max_reply_tokens analyzer_prompt_tokens skill_tokens minibatches "
             "sft_tasks sft_rollouts sft_epochs sft_batch train_games seen_games unseen_games eval_every eval_episodes save_every "
             "gradients_every sample_tokens", lambda x: x >= 1, "at least 1"),
            ("history_length invalid_penalty kl_coef opd_coef gate_beta weight_decay lora_rank batch_tokens", lambda x: x >= 0, "0 or more"),
            ("temperature eval_temperature analyzer_temperature learning_rate sft_learning_rate clip_ratio grad_clip", lambda x: x > 0, "more than 0"),
            ("train_fraction", lambda x: 0 < x <= 1, "more than 0, at most 1")):
        for name in names.split():
            if not holds(getattr(config, name)):
                raise UserError(f"--{name.replace('_', '-')} is {getattr(config, name)}: expected {expected}")
    if not METHODS[config.method].trains:  # its run is an evaluation
        config.updates, config.init = 0, "base" if config.init == "auto" else config.init
    if config.group_size < 2:
        raise UserError("--group-size 1 gives no group-relative advantage: expected at least 2")
    if not config.lora_rank and config.dtype != "float32":
        raise UserError(f"--dtype {config.dtype} with --lora-rank 0: steps as small as --learning-rate {config.learning_rate} are lost "
                        f"in its rounding; train all weights with --dtype float32, or adapters with --lora-rank 32")
    if config.vision and config.env not in VISUAL:
        raise UserError(f"--env {config.env} has no pictures: expected --env {' or '.join(VISUAL)}, or a preset without vision")
    if config.vision and config.model == "tiny":
        raise UserError("--vision: the tiny preset's models see nothing: give --preset qwen2.5-vl-3b")
    if config.quantize and not config.lora_rank:
        raise UserError("--quantize trains adapters on 4-bit weights: give --lora-rank, for example --lora-rank 32")
    config.out = config.out or f"runs/{config.env}-{config.preset}-{config.method}-seed{config.seed}"
    return config


def load_config(path: Path) -> Config:
    """The config.json of a run folder. Unknown and missing options are errors: the run is of another version."""
    try:
        data = json.loads(Path(path).read_text())["config"]
        if set(data) != {knob_.name for knob_ in fields(Config)}:
            raise ValueError(f"options differ: {sorted(set(data) ^ {knob_.name for knob_ in fields(Config)})}")
        return Config(**data)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{Path(path).parent.absolute()} is no run folder: it has no {Path(path).name}. "
                        f"{known_runs(Path(path).parent)}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a configuration of this version: {error}") from None


def known_runs(folder: Path) -> str:
    """What to type instead of `folder`: the run that it is in, or those that there are."""
    if holder := next((parent for parent in folder.absolute().parents if (parent / "config.json").exists()), None):
        return f"It is a part of {holder}: give that"
    there = sorted(str(path.parent) for path in Path("runs").glob("*/config.json"))
    return f"Run folders here: {', '.join(there)}" if there else "There is no run folder below runs/ here"


def as_dict(config: Config) -> dict:
    return asdict(config)


def check_python() -> None:
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        raise UserError(f"this is Python {sys.version.split()[0]}; the ALFWorld engine (textworld 1.7) runs on 3.11 and 3.12: "
                        f"make the virtual environment with one of these, for example `python3.12 -m venv .venv`")
