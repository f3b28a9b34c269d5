"""Small stand-ins: contexts, trajectories, and policies with random weights."""
import random

from seed.trajectory import Context, Step, Task, Trajectory

WORDS = "mug shelf 1 2 desk ' \" [ ] { } <think> </action> \n skill: Task é 去".split(" ")


def random_text(rng: random.Random, most: int = 12) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def random_context(rng: random.Random) -> Context:
    step = rng.randint(1, 12)
    history = tuple((random_text(rng), random_text(rng)) for _ in range(rng.randint(0, min(5, step - 1))))
    return Context(Task("alfworld", "a/b", "pick_and_place_simple", random_text(rng)), history, random_text(rng),
                   tuple(random_text(rng) for _ in range(rng.randint(1, 4))), step)


def trajectory(steps: int = 3, success: bool = True, description: str = "put a mug in shelf.", text: str = "You see a mug 1.",
               group: int = 0, copy: int = 0) -> Trajectory:
    """A finished episode of a made-up game: nobody played it."""
    task = Task("alfworld", "json_2.1.1/train/x/trial_1", "pick_and_place_simple", description)
    t = Trajectory(task, group, copy, success=success)
    history = []
    for k in range(1, steps + 1):
        action = f"go to shelf {k}"
        context = Context(task, tuple(history[-5:]), f"{text} ({k})", ("look", action), k)
        t.steps.append(Step(context, [1, 2, 3], [5, 6, 1], [-0.1, -0.25, -1.5], f"<think>x</think><action>{action}</action>",
                            action, True, True, True, 10.0 * (success and k == steps), f"{text} ({k + 1})"))
        history.append((context.observation, action))
    return t


def random_policy(seed: int = 0, width: int = 64, layers: int = 2, lora: int = 0, scale: float = 3.0):
    """Qwen2's architecture with random weights, larger than usual so that log-probs differ, and the tiny tokenizer."""
    import torch
    from seed.config import TINY_MODELS
    from seed.policy import Policy, add_adapter, load_tokenizer
    from seed.tiny import build_model
    tokenizer = load_tokenizer(TINY_MODELS / "alfworld")
    torch.manual_seed(seed)
    model = build_model(len(tokenizer), width, layers).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    if lora:
        model = add_adapter(model, lora)
        with torch.no_grad():  # LoRA's B starts at 0: fill it, so that the adapter matters
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.1)
    return Policy(model.eval(), tokenizer, {"preset": "test", "model": "random", "lora_rank": lora})


MARKS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TEMPLATE = ("{% for message in messages %}<|{{ message.role }}|>{% if message.content is string %}{{ message.content }}{% else %}"
            "{% for part in message.content %}{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}"
            "{% endif %}{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")


def build_vision_model(out):
    """A vision-language model of Qwen2.5-VL's architecture with 130,000 parameters, random, and its image processor, in folder `out`."""
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from seed.config import TINY_MODELS
    from seed.policy import load_tokenizer
    tokenizer = load_tokenizer(TINY_MODELS / "alfworld")
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    tokenizer.chat_template = TEMPLATE
    ids = dict(zip(("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"),
                   tokenizer.convert_tokens_to_ids(list(MARKS))))
    text = dict(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, max_position_embeddings=4096, tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=None,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]})
    seen = dict(depth=2, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64, fullatt_block_indexes=[1], window_size=56)
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=seen, tie_word_embeddings=True, **ids))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
        model.model.language_model.norm.weight.mul_(4.0)           # so that it can be sure of a token
    model.generation_config.eos_token_id = [1, *range(600, 700)]   # so that some of its replies end
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    Qwen2VLImageProcessorPil().save_pretrained(out)
    return out
