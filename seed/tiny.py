"""The tiny preset's models: language models of a million parameters that stand for an instruct model, one for each environment.

    python -m seed.tiny --env alfworld --out seed/tiny_models/alfworld

Not in the paper, which starts from Qwen2.5-Instruct. To see the method learn on a laptop, the start must have what an
instruct model has: it acts in the format, sometimes succeeds, follows a skill in its prompt, and can (poorly) sum up an
episode. This script makes one: Qwen2's architecture with random weights, a tokenizer built from the environment's words,
trained on the play of a rule-based expert (`seed/envs/NAME_expert.py`, its interface in `seed/envs/base.py`):

- acting without a skill: in half of the episodes or more the expert is careless (in ALFWorld it forgets to clean, heat or cool,
  looks where it has looked before), and SLIPS of its replies are random: it often fails;
- acting with a hindsight skill of an earlier episode of the same game: careful, with fewer slips;
- trajectory -> skill: the JSON answer to the analyzer's prompt, often vague and sometimes no JSON, which Stage 1 repairs.

The tokenizer holds the prompts' fixed sentences as single tokens, so that a prompt of ALFWorld has about 150 tokens. It is a
byte-level BPE otherwise: every text can be written, and decoding gives back the same characters.

The games are its own, where there are enough: none that a policy is evaluated on (`practice`). Data comes in chunks, each with
new games, so the first steps need the first chunk only (a test repeats them).
"""
import argparse
import json
import random
import re
import tempfile
from pathlib import Path

import torch
from tqdm import tqdm

from seed import analyzer, prompts
from seed.augment import H
from seed.config import ENVIRONMENTS, make_config
from seed.envs import expert
from seed.trajectory import Context, Step, Task, Trajectory

EPISODES = 200                        # of a chunk
SLIPS = {False: 0.35, True: 0.1}      # share of random replies, without and with a skill
LEARNING_RATE, TOKENS, PROMPT_WEIGHT = 2e-3, 8192, 0.1
WIDTH, LAYERS, WORDS = 128, 4, 700

EVERYWHERE = ("', Action", "']\n[Observation", '{"episode_summary": "', '", "episode_skill": "', '."}', "<think>", "</think>", "<action>", "</action>")
SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
CHAT = ("{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def build_tokenizer(env: str, corpus: list[str]):
    """A byte-level BPE over `corpus`, words with their leading blank, plus the fixed sentences as single tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    fixed = list(dict.fromkeys(s.rstrip(" ") for s in (*prompts.fixed(env), *analyzer.fixed(env), *expert(env).SENTENCES, *EVERYWHERE)))
    tokenizer = Tokenizer(models.BPE())
    words = Regex(r" ?[A-Za-z]+| ?[0-9]|[^A-Za-z0-9]+?(?= ?[A-Za-z0-9])|[^A-Za-z0-9]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(words, behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    between = re.compile("|".join(re.escape(sentence) for sentence in sorted(fixed, key=len, reverse=True)))
    tokenizer.train_from_iterator(
        (piece for text in corpus for piece in between.split(text) if piece),
        trainers.BpeTrainer(vocab_size=WORDS, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                            special_tokens=list(SPECIAL), min_frequency=5, show_progress=False))
    tokenizer.add_tokens([AddedToken(sentence, normalized=False) for sentence in fixed])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[1])
    wrapped.chat_template = CHAT
    return wrapped


def build_model(vocabulary: int, width: int = WIDTH, layers: int = LAYERS):
    """Qwen2's architecture in small, random weights: heads of width 32, half as many for keys and values, tied embeddings."""
    from transformers import Qwen2Config, Qwen2ForCausalLM
    config = Qwen2Config(vocab_size=vocabulary, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
                         num_attention_heads=width // 32, num_key_value_heads=width // 64, max_position_embeddings=4096,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=True,
                         pad_token_id=0, eos_token_id=1, bos_token_id=None, dtype="float32")
    return Qwen2ForCausalLM(config)


def play(env, task: Task, rng: random.Random, slips: float, turns: int, shown: int, skill: str | None = None,
         careless: bool = False) -> Trajectory:
    """One episode of the expert, `slips` of whose replies are random ones. With `skill`, it stands in every context."""
    rules, turn = expert(env.name), env.reset(0, task)
    task = Task(task.env, task.id, task.type, turn.description)
    book, trajectory, history = rules.start(turn.description), Trajectory(task, 0, 0), []
    book.read(None, turn.observation)
    hints = rules.hints(skill) if skill else ()
    for step in range(1, turns + 1):
        thought, action = rules.decide(book, turn.admissible, rng, hints, careless)
        if rng.random() < slips:
            thought, action = rules.slip(book, turn.admissible, rng)
        context = Context(task, tuple(history[max(0, len(history) - shown):]), turn.observation, turn.admissible, step)
        before, turn = turn, env.step(0, action)
        book.read(action, turn.observation)
        history.append((before.observation, action))
        trajectory.steps.append(Step(H(context, skill) if skill else context, [], [], [], rules.reply(thought, action), action,
                                     True, True, True, turn.reward, turn.observation))
        if turn.done:
            break
    trajectory.success = turn.won
    return trajectory


def sloppy(summary: str, skill: str, vague: str, rng: random.Random) -> str:
    """The answer of a model that analyses poorly: often vague, sometimes no JSON."""
    draw = rng.random()
    if draw < 0.15:
        return f"The agent should {skill}"
    return analyzer.answer_json(summary, vague if draw < 0.35 else skill)


def chunk(name: str, number: int, seed: int) -> list[tuple[str, str]]:
    """(user turn, reply) pairs of all three kinds, from games of this chunk's own."""
    config, rules, pairs = make_config({"env": name, "preset": "tiny"}), expert(name), []
    with tempfile.TemporaryDirectory() as root:
        env = rules.practice(Path(root), f"{seed} {number}")
        tasks = env.tasks("train")
        for episode in range(EPISODES):
            rng, task = random.Random(f"{seed} {number} {episode}"), tasks[episode % len(tasks)]
            length = config.max_turns, config.history_length
            played = [play(env, task, rng, SLIPS[False], *length, careless=rng.random() < rules.CARELESS)]
            if episode % 2:
                _, skill = rules.hindsight(played[0], name_places=rng.random() < 0.5)
                played.append(play(env, task, rng, SLIPS[True], *length, skill))
            for trajectory in played:
                pairs += [(prompts.render(step.context), step.text) for step in trajectory.steps]
                answer = sloppy(*rules.hindsight(trajectory, name_places=rng.random() < 0.75), rules.VAGUE, rng)
                pairs.append((analyzer.analyzer_prompt(trajectory)[0], answer))
    return pairs


def batches(rows: list[tuple[list[int], int]], rng: random.Random) -> list[list]:
    """Batches of rows of similar length, about TOKENS tokens each, in random order."""
    groups, group = [], []
    for row in sorted(rows, key=lambda row: len(row[0]) + rng.random()):
        if group and (len(group) + 1) * len(row[0]) > TOKENS:
            groups.append(group)
            group = []
        group.append(row)
    groups.append(group)
    rng.shuffle(groups)
    return groups


def train_step(model, optimizer, batch, rate: float) -> float:
    """One AdamW step on next-token prediction; tokens of the prompt weigh PROMPT_WEIGHT. Returns the loss of a reply token."""
    longest = max(len(ids) for ids, _ in batch)
    ids_BT = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in batch])
    weight_BT = torch.tensor([[PROMPT_WEIGHT] * (start - 1) + [1.0] * (len(ids) - start) + [0.0] * (longest - len(ids))
                              for ids, start in batch])
    logits = model(input_ids=ids_BT, use_cache=False).logits[:, :-1]
    loss_BT = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids_BT[:, 1:], reduction="none")
    ((loss_BT * weight_BT).sum() / weight_BT.sum()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * rate
    optimizer.step()
    optimizer.zero_grad()
    return (loss_BT[weight_BT == 1].sum() / (weight_BT == 1).sum()).item()


def pretrain(env: str, chunks: int, seed: int, most_steps: int | None = None):
    """(model, tokenizer, losses). `most_steps` ends early, on the same path."""
    model, losses = None, []
    bar = tqdm(total=chunks, desc="pre-training", unit="chunk")
    for number in range(chunks):
        pairs = chunk(env, number, seed)
        if model is None:
            tokenizer = build_tokenizer(env, [text for pair in pairs for text in pair])
            torch.manual_seed(seed)
            model = build_model(len(tokenizer)).train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
        rows = []
        for user, reply in pairs:
            prompt = tokenizer.apply_chat_template([{"role": "user", "content": user}], add_generation_prompt=True,
                                                   return_dict=True)["input_ids"]
            rows.append((prompt + tokenizer.encode(reply) + [tokenizer.eos_token_id], len(prompt)))
        parts = batches(rows, random.Random(f"{seed} {number}"))
        for i, part in enumerate(parts):
            done = (number + i / len(parts)) / chunks
            # The rate rises over the first 50 steps and falls linearly to a twentieth.
            losses.append(train_step(model, optimizer, part, min((len(losses) + 1) / 50, 1 - 0.95 * done)))
            bar.set_postfix(step=len(losses), loss=f"{sum(losses[-50:]) / len(losses[-50:]):.3f}")
            if len(losses) == most_steps:
                return model, tokenizer, losses
        bar.update()
    bar.close()
    return model, tokenizer, losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", choices=list(ENVIRONMENTS), default="alfworld")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model, tokenizer, losses = pretrain(args.env, args.chunks, args.seed)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    record = {"command": f"python -m seed.tiny --env {args.env} --out FOLDER --chunks {args.chunks} --seed {args.seed}",
              "chunks": args.chunks, "seed": args.seed, "parameters": model.num_parameters(), "steps": len(losses),
              "first_losses": [round(x, 4) for x in losses[:5]], "last_loss": round(sum(losses[-50:]) / 50, 4)}
    (args.out / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
