"""The policy: one model that acts and analyses, its tokenizer, and the frozen copy that the KL term refers to.

In the paper: pi_theta, as actor and as analyzer, and theta_sft, where reinforcement learning starts and which the KL term
refers to. Two ways to train, by preset:

- all weights (the tiny preset): the reference is a frozen second model;
- LoRA on a model that may be quantised to 4 bits: the adapter `default` is trained, the adapter `reference` is its frozen
  copy at the start of RL. "Adapter off" would be the base model, not theta_sft. Adapters are never merged.

A saved policy is a folder: `adapter` or `model` weights, the tokenizer, and policy.json, which says what it is.
"""
import contextlib
import copy
import hashlib
import json
from pathlib import Path

import torch

from seed.config import TINY_MODELS
from seed.errors import UserError
from seed.gguf import local_model
from seed.prompts import render
from seed.trajectory import Context
from seed.vision import IMAGE, Eyes


class Policy:
    def __init__(self, model, tokenizer, identity: dict, eyes: Eyes | None = None):
        """`identity`: preset, model and LoRA rank; a folder saved with another identity is refused. `eyes`: of a vision model."""
        self.model, self.tokenizer, self.identity, self.eyes = model, tokenizer, identity, eyes
        self.lora = bool(identity["lora_rank"])
        self.frozen = None                       # the reference model, where all weights are trained
        self.device = next(model.parameters()).device
        ends = model.generation_config.eos_token_id
        self.end_ids = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
        if not self.end_ids:
            raise UserError(f"{identity['model']} has no end-of-turn token: --model needs an instruct model, whose replies can end")
        self.controls = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self.end_ids)

    # --- text and ids

    def encode(self, user: str, images: tuple = ()) -> list[int]:
        """Prompt ids of one user turn, its pictures first: the chat template, up to where the reply begins."""
        for control in self.controls:  # what the model or a game wrote must not close the turn
            user = user.replace(control, "")
        content = [*[{"type": "image"}] * len(images), {"type": "text", "text": user}] if images else user
        ids = self.tokenizer.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True,
                                                 enable_thinking=False, return_dict=True)["input_ids"]
        return self.eyes.prompt(ids, images) if images else ids

    def encode_context(self, context: Context) -> list[int]:
        return self.encode(render(context), context.images)

    def decode(self, action_ids: list[int]) -> str:
        """The text of a reply, without its end-of-turn token. For reading, parsing and logs; never encoded again."""
        if action_ids and action_ids[-1] in self.end_ids:
            action_ids = action_ids[:-1]
        return self.tokenizer.decode(action_ids, clean_up_tokenization_spaces=False)

    # --- weights

    def trainable(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def freeze_reference(self) -> None:
        """Make the reference: a frozen copy of the weights as they are now."""
        if self.lora:
            from peft import get_peft_model_state_dict, set_peft_model_state_dict
            if "reference" not in self.model.peft_config:
                self.model.add_adapter("reference", copy.deepcopy(self.model.peft_config["default"]))
            weights = get_peft_model_state_dict(self.model, adapter_name="default", save_embedding_layers=False)
            set_peft_model_state_dict(self.model, weights, adapter_name="reference")
            self.model.set_adapter("default")
            self.model.eval()
        else:
            self.frozen = copy.deepcopy(self.model).requires_grad_(False)

    @contextlib.contextmanager
    def weights(self, reference: bool = False):
        """(backbone, head) with the policy's weights, or the reference's; backbone ids -> hidden, head hidden -> logits."""
        if not self.lora:
            model = self.frozen if reference else self.model
            yield model.model, model.lm_head
            return
        base = self.model.get_base_model()  # LoRA's layers sit inside it
        if reference:
            self.model.set_adapter("reference", inference_mode=True)
        try:
            yield base.model, base.lm_head
        finally:
            if reference:
                self.model.set_adapter("default")

    def fingerprint(self) -> str:
        """A hash of the trained weights: it must change with the first update."""
        digest = hashlib.sha256()
        for parameter in self.trainable():
            digest.update(parameter.detach().float().cpu().numpy().tobytes())
        return digest.hexdigest()[:12]

    # --- folders

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.lora:
            self.model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        if self.eyes:
            self.eyes.processor.save_pretrained(folder)
        (folder / "policy.json").write_text(json.dumps(self.identity))

    def load(self, folder: Path) -> None:
        """Take over the trained weights of a folder that `save` made."""
        check_identity(folder, self.identity)
        if self.lora:
            from peft import load_peft_weights, set_peft_model_state_dict
            set_peft_model_state_dict(self.model, load_peft_weights(str(folder)), adapter_name="default")
        else:
            from safetensors.torch import load_model
            load_model(self.model, str(folder / "model.safetensors"))


def load_policy(config, folder: str | Path | None = None, identity: dict | None = None) -> Policy:
    """The policy of a preset: its base model, or with the weights saved in `folder`. `identity`: what the folder must have been
    saved as, where that is not this configuration (export.py loads an adapter onto other weights)."""
    from transformers import AutoImageProcessor
    from transformers.utils import logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # a hub that cannot be reached is told in one line below, not in ten
    name = tiny_model(config.env) if config.model == "tiny" else local_model(config.model)
    identity = identity or {"preset": config.preset, "model": model_name(name), "lora_rank": config.lora_rank,
                            "quantize": config.quantize}
    if folder is not None:
        check_identity(Path(folder), identity)
    device = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() and config.preset != "tiny" else "cpu"
    options = dict(dtype=getattr(torch, config.dtype))
    if config.quantize:
        from transformers import BitsAndBytesConfig
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=options["dtype"])
        options["device_map"] = {"": device}
    source = str(folder) if folder is not None and not config.lora_rank else name
    try:
        tokenizer, eyes = load_tokenizer(source), None
        if config.vision:
            # "pil": the one kind that is always there, so that a picture has the same values everywhere.
            eyes = Eyes(AutoImageProcessor.from_pretrained(source, backend="pil"), tokenizer.convert_tokens_to_ids(IMAGE))
        model = model_class(config).from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot load the model {source}: {str(error).splitlines()[0]} (--model takes a hub id or a "
                        f"folder; without a network, a folder)") from error
    if not tokenizer.chat_template:
        raise UserError(f"{source} has no chat template: --model needs an instruct model")
    model.to(device)
    switch_off_dropout(model)
    if config.quantize and device == "cpu":
        keep_4bit_weights_as_they_are(model)
    if config.gradient_checkpointing:  # in effect in train() mode alone, so not while sampling: see rescore.py
        model.activation_checkpointing_enable({"use_reentrant": False})
    if config.lora_rank:
        torch.manual_seed(config.seed)  # a new adapter starts from random numbers
        model = add_adapter(model, config.lora_rank, folder)
    model.eval()
    policy = Policy(model, tokenizer, identity, eyes)
    if not policy.trainable():
        raise UserError(f"no weight of {source} can be trained: --model needs float weights, or give --lora-rank 32")
    return policy


def model_class(config):
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    return AutoModelForImageTextToText if config.vision else AutoModelForCausalLM


def tiny_model(env: str) -> str:
    folder = TINY_MODELS / env
    if not folder.is_dir():
        raise UserError(f"the tiny preset has no model for {env} yet: make one (python -m seed.tiny --env {env} --out {folder}, about an "
                        f"hour), or give --preset smollm2-135m or a bigger one")
    return str(folder)


def load_tokenizer(source: str):
    """The tokenizer of a model. AutoTokenizer goes by the model's architecture; a folder that states a plain tokenizers file
    (as the tiny preset's does, whose architecture is Qwen2's and whose tokenizer is not) is taken at its word."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    stated = Path(source) / "tokenizer_config.json"
    plain = stated.exists() and json.loads(stated.read_text()).get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return (PreTrainedTokenizerFast if plain else AutoTokenizer).from_pretrained(source)


def switch_off_dropout(model) -> None:
    """The log-probs of sampling, scoring and training must agree, in train() as in eval()."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0


def keep_4bit_weights_as_they_are(model) -> None:
    """On CPUs with AVX512-BF16, bitsandbytes repacks a layer in its first forward pass in eval() mode; no gradient passes through
    it afterwards."""
    from bitsandbytes.nn import Linear4bit
    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def add_adapter(model, rank: int, folder=None):
    from peft import LoraConfig, PeftModel, get_peft_model
    model.requires_grad_(False)
    if folder is not None:
        return PeftModel.from_pretrained(model, str(folder), is_trainable=True)
    # All linear layers, but of a vision model those of its language model alone: what it sees stays as it was.
    layers = r".*language_model\..*_proj" if hasattr(model.config, "vision_config") else "all-linear"
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=layers, task_type="CAUSAL_LM"))


def model_name(model: str) -> str:
    """A folder by its last part (where it lies differs between machines), a hub id as it is."""
    return Path(model).name if Path(model).is_dir() else model


def check_identity(folder: Path, identity: dict) -> None:
    try:
        saved = json.loads((folder / "policy.json").read_text())
    except (OSError, ValueError):
        raise UserError(f"{folder} holds no saved policy (no readable policy.json): expected a folder like "
                        f"runs/NAME/checkpoints/update-20/policy") from None
    if saved != identity:
        raise UserError(f"{folder} was saved with {saved}, and this run has {identity}: give the same --preset, --model and "
                        f"--lora-rank, or another folder")
