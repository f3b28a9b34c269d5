"""What the benches share: a model with random weights as a policy, replies of random length, and plain generation. Not a script."""
import contextlib
import math

import torch

END = 1  # the end-of-turn token


class BarePolicy:
    """A causal language model as sampling and scoring take it; no tokenizer, no reference."""
    pad_id, end_ids, eyes = 0, {END}, None

    def __init__(self, model):
        self.model, self.device = model, next(model.parameters()).device

    def weights(self, reference=False):
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        return contextlib.nullcontext((base.model, base.lm_head))

    def trainable(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]


def random_qwen2(vocabulary: int, hidden: int, layers: int, inner: int, heads: int, keys: int, tied: bool):
    """Qwen2's architecture with random weights, always the same ones."""
    from transformers import Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                                        num_attention_heads=heads, num_key_value_heads=keys, tie_word_embeddings=tied, pad_token_id=0,
                                        eos_token_id=END))


def ending_head(vocabulary: int, hidden: int, mean: int) -> torch.nn.Linear:
    """An output layer that draws nearly evenly from all tokens and ends a reply with probability 1 / mean at each."""
    head = torch.nn.Linear(hidden, vocabulary)
    with torch.no_grad():
        head.weight.mul_(0.01)
        head.bias.zero_()
        head.bias[END] = math.log(vocabulary / mean)
    return head


@torch.no_grad()
def generate(policy, prompts: list[list[int]], most: int) -> int:
    """transformers' `generate` on all prompts at once; returns the number of tokens in the replies."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[policy.pad_id] * (longest - len(p)) + p for p in prompts], device=policy.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    out = policy.model.generate(input_ids=ids, attention_mask=mask, do_sample=True, top_k=0, top_p=1.0, temperature=1.0,
                                max_new_tokens=most)[:, longest:].tolist()
    return sum(row.index(END) + 1 if END in row else len(row) for row in out)
