"""The tiny preset's model: a language model of a million parameters that stands for an instruct model.

    python -m seed.tiny --out seed/tiny_models/alfworld

Not in the paper, which starts from Qwen2.5-Instruct. To see the method learn on a laptop, the start must have what an
instruct model has: it acts in the format, sometimes succeeds, follows a skill in its prompt, and can (poorly) sum up an
episode. This script makes one: Qwen2's architecture with random weights, a tokenizer built from the games' words, trained
on the play of a rule-based expert (`seed/envs/alfworld_expert.py`):

- acting without a skill: in half of the episodes the expert is careless (forgets to clean, heat or cool, looks where it has
  looked before), and SLIPS of its replies are random: it often fails;
- acting with a hindsight skill of an earlier episode of the same game: careful, with fewer slips;
- trajectory -> skill: the JSON answer to the analyzer's prompt, often vague and sometimes no JSON, which Stage 1 repairs.

The tokenizer holds the prompts' fixed sentences as single tokens, so that a prompt has about 150 tokens. It is a byte-level
BPE otherwise: every text can be written, and decoding gives back the same characters.

The games are its own: their layouts are none of those that `alfworld_games` makes for training and evaluation. Data comes in
chunks, each with new games, so the first steps need the first chunk only (a test repeats them).
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
from seed.envs.alfworld import GAMES_SEED, AlfWorld
from seed.envs.alfworld_games import LAYOUTS_PER_ROOM, Difficulty, make_all_layouts, make_games
from seed.envs.alfworld_expert import Notebook, decide, hindsight, parse_goal
from seed.trajectory import Context, Step, Task, Trajectory

EPISODES, GAMES = 200, 48             # of a chunk
TURNS, SHOWN = 15, 5                  # turns of an episode, history in the prompt
SLIPS = {False: 0.35, True: 0.1}      # share of random replies, without and with a skill
LEARNING_RATE, TOKENS, PROMPT_WEIGHT = 2e-3, 8192, 0.1
WIDTH, LAYERS, WORDS = 128, 4, 700

SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
CHAT = ("{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}")
# Sentences of the engine and of the prompts that are worth one token each. Words that follow keep their leading blank.
SENTENCES = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a",
    "\n\nYour task is to:", "You arrive at", ". On the", ", you see a", ", you see nothing.", ", and a", ", a",
    " is open. In it, you see a", " is open. In it, you see nothing.", " is closed.", "You pick up the", "You move the",
    "', Action", "']\n[Observation", "'\n 'go to", '{"episode_summary": "', '", "episode_skill": "', '."}',
    "<think>", "</think>", "<action>", "</action>")


def build_tokenizer(corpus: list[str]):
    """A byte-level BPE over `corpus`, words with their leading blank, plus the fixed sentences as single tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    fixed = list(dict.fromkeys(s.rstrip(" ") for s in (*prompts.fixed("alfworld"), *analyzer.fixed("alfworld"), *SENTENCES)))
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


def play(env: AlfWorld, task: Task, rng: random.Random, slips: float, turns: int, shown: int, skill: str | None = None,
         careless: bool = False) -> Trajectory:
    """One episode of the expert, `slips` of whose replies are random ones. With `skill`, it stands in every context."""
    turn = env.reset(0, task)
    task = Task(task.env, task.id, task.type, turn.description)
    goal, history = parse_goal(turn.description), []
    book, trajectory = Notebook(goal), Trajectory(task, 0, 0)
    book.read(None, turn.observation)
    hints = tuple(re.findall(r"[a-z]+ \d+", skill.split(", take")[0])) if skill else ()  # "Find mug in shelf 1 or desk 2, take"
    thoughts = [f"{verb} {goal.obj}" for verb in ("find", "take", "put", goal.verb) if verb]
    for step in range(1, turns + 1):
        thought, action = decide(book, turn.admissible, rng, hints, careless)
        if rng.random() < slips:
            thought, action = rng.choice(thoughts), rng.choice(turn.admissible)
        context = Context(task, tuple(history[max(0, len(history) - shown):]), turn.observation, turn.admissible, step)
        before, turn = turn, env.step(0, action)
        book.read(action, turn.observation)
        history.append((before.observation, action))
        trajectory.steps.append(Step(H(context, skill) if skill else context, [], [], [],
                                     f"<think>{thought}</think><action>{action}</action>", action, True, True, True,
                                     turn.reward, turn.observation))
        if turn.done:
            break
    trajectory.success = turn.won
    return trajectory


def sloppy(summary: str, skill: str, rng: random.Random) -> str:
    """The answer of a model that analyses poorly: often vague, sometimes no JSON."""
    draw = rng.random()
    if draw < 0.15:
        return f"The agent should {skill}"
    return analyzer.answer_json(summary, "Find it, take it, put it." if draw < 0.35 else skill)


def chunk(number: int, seed: int) -> list[tuple[str, str]]:
    """(user turn, reply) pairs of all three kinds, from games of this chunk's own."""
    reserved: set = set()   # the layouts of the made games that policies are trained and evaluated on
    make_all_layouts(Difficulty(), GAMES_SEED, LAYOUTS_PER_ROOM, reserved)
    pairs = []
    with tempfile.TemporaryDirectory() as root:
        make_games(Path(root), {"train": GAMES}, Difficulty((4, 7), (4, 8)), f"{seed} {number}", None, (6, 0), reserved)
        env = AlfWorld(Path(root), 1, None)
        tasks = env.tasks("train")
        for episode in range(EPISODES):
            rng, task = random.Random(f"{seed} {number} {episode}"), tasks[episode % len(tasks)]
            played = [play(env, task, rng, SLIPS[False], TURNS, SHOWN, careless=rng.random() < 0.5)]
            if episode % 2:
                _, skill = hindsight(played[0], name_places=rng.random() < 0.5)
                played.append(play(env, task, rng, SLIPS[True], TURNS, SHOWN, skill))
            for trajectory in played:
                pairs += [(prompts.render(step.context), step.text) for step in trajectory.steps]
                answer = sloppy(*hindsight(trajectory, name_places=rng.random() < 0.75), rng)
                pairs.append((analyzer.analyzer_prompt(trajectory), answer))
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


def pretrain(chunks: int, seed: int, most_steps: int | None = None):
    """(model, tokenizer, losses). `most_steps` ends early, on the same path."""
    model, losses = None, []
    bar = tqdm(total=chunks, desc="pre-training", unit="chunk")
    for number in range(chunks):
        pairs = chunk(number, seed)
        if model is None:
            tokenizer = build_tokenizer([text for pair in pairs for text in pair])
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
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model, tokenizer, losses = pretrain(args.chunks, args.seed)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    record = {"command": f"python -m seed.tiny --out FOLDER --chunks {args.chunks} --seed {args.seed}",
              "chunks": args.chunks, "seed": args.seed, "parameters": model.num_parameters(), "steps": len(losses),
              "first_losses": [round(x, 4) for x in losses[:5]], "last_loss": round(sum(losses[-50:]) / 50, 4)}
    (args.out / "pretraining.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
