"""Re-scoring: the log-probs of given action tokens under given prompts.

In the paper: the sampled actions stay as they are, and one policy scores them under the plain context h (student), under
h~ = H(h, s) (teacher), and, frozen as it was at the start, for the KL term (reference). Here all three are this function
with other prompts or other weights.

Shapes: a row is one step, (prompt_ids, action_ids); B rows in a micro-batch, T tokens of its longest row, L action tokens
of the longest reply, N action tokens in all, D hidden width, V vocabulary.

Memory: logits of every position would take B * T * V numbers (4 rows of 512 tokens at V = 151,936: 1.2 GB, before the
softmax and the gradient). Only the N positions that predict an action token are projected to the vocabulary, in chunks, and
in training each chunk is recomputed in the backward pass instead of being kept.

Rows are padded on the right: with causal attention no real token ever sees the padding, so no mask is needed.
"""
import torch
from torch.utils.checkpoint import checkpoint
from tqdm import tqdm

CHUNK = 256  # action tokens projected to the vocabulary at once


def micro_batches(lengths: list[int], batch_tokens: int) -> list[list[int]]:
    """Row numbers in batches of similar length; a batch has at most `batch_tokens` tokens, padding included."""
    batches, batch = [], []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            batches.append(batch)
            batch = []
        batch.append(i)
    return batches + [batch] if batch else batches


def progress(batches: list, title: str):
    """The micro-batches one by one, with a bar on a terminal."""
    return tqdm(batches, desc=title, unit="batch", leave=False, disable=None)


def action_logprobs(policy, rows: list[tuple[list[int], list[int]]], reference: bool = False):
    """(logp_BL, entropy_BL, mask_BL) of one micro-batch; 0 and False beyond a row's reply. Differentiable in logp_BL.

    logp_BL[i, l] = log pi(a_l | prompt_i, a_<l). `reference`: with the frozen weights of the start.
    """
    longest = max(len(prompt) + len(action) for prompt, action in rows)
    ids_BT = torch.tensor([prompt + action + [policy.pad_id] * (longest - len(prompt) - len(action))
                           for prompt, action in rows], device=policy.device)
    # train() or eval() changes one thing here, since no model has dropout: with gradient checkpointing on, it works in train().
    policy.model.train(torch.is_grad_enabled())
    with policy.weights(reference) as (backbone, head):
        inputs = dict(input_ids=ids_BT)
        if policy.eyes:
            inputs = policy.eyes.inputs(backbone, [prompt for prompt, _ in rows], ids_BT, torch.ones_like(ids_BT))
        hidden_BTD = backbone(**inputs, use_cache=False).last_hidden_state

    # Token l of a row's reply is predicted at position len(prompt) - 1 + l. Only these N positions of all rows go on, in one flat
    # list (prompt of 5, reply of 2: positions 4 and 5), and their scores are put back into [B, L] below.
    lengths_B = torch.tensor([len(action) for _, action in rows], device=policy.device)
    starts_B = torch.tensor([len(prompt) - 1 for prompt, _ in rows], device=policy.device)
    steps_L = torch.arange(int(lengths_B.max()), device=policy.device)
    mask_BL = steps_L < lengths_B[:, None]
    row_N, step_N = mask_BL.nonzero(as_tuple=True)
    position_N = starts_B[row_N] + step_N
    hidden_ND, target_N = hidden_BTD[row_N, position_N], ids_BT[row_N, position_N + 1]

    logp, entropy = [], []
    for hidden, target in zip(hidden_ND.split(CHUNK), target_N.split(CHUNK)):
        project = _project_checkpointed if torch.is_grad_enabled() else _project
        for values, out in zip(project(head, hidden, target), (logp, entropy)):
            out.append(values)
    logp_BL = hidden_ND.new_zeros(mask_BL.shape, dtype=torch.float32).index_put((row_N, step_N), torch.cat(logp))
    entropy_BL = torch.zeros_like(logp_BL).index_put((row_N, step_N), torch.cat(entropy))
    return logp_BL, entropy_BL, mask_BL


def _project(head, hidden, target):
    logp_NV = head(hidden).float().log_softmax(-1)
    with torch.no_grad():
        entropy_N = -(logp_NV.exp() * logp_NV).sum(-1)
    return logp_NV.gather(1, target[:, None])[:, 0], entropy_N


def _project_checkpointed(head, hidden, target):
    return checkpoint(_project, head, hidden, target, use_reentrant=False)


@torch.no_grad()
def score(policy, rows, batch_tokens: int, reference: bool = False) -> list[torch.Tensor]:
    """Log-probs of each row's action tokens, in the order of `rows`, without gradient."""
    scores = [None] * len(rows)
    for batch in progress(micro_batches([len(prompt) + len(action) for prompt, action in rows], batch_tokens), "scoring"):
        logp_BL, _, mask_BL = action_logprobs(policy, [rows[i] for i in batch], reference)
        for i, logp_L, mask_L in zip(batch, logp_BL, mask_BL):
            scores[i] = logp_L[mask_L]
    return scores
