"""EZPoints: build a formula worth 12 from two cards, one token at a time, the cards shown as text or as a picture.

In the paper: one of the vision experiments (8 steps). Numbers count what the cards show; J, Q and K count 10. The tokens are the
numbers 1 to 10, +, * and =, which ends the game.

    r_t = 10 for an = after a formula that is worth 12 and has used both cards, else 0

In the vision form the picture alone shows the cards (`Turn.images`, 300 x 300 pixels); the formula so far stands in the text of
both forms. A number that is on no card, or is used up, and a reply that was not understood change nothing.

Splits. There are 304 different deals (cards with suits, in order) of seven pairs of numbers. valid_unseen has the 64 deals of 4 + 8
and of 3 * 4, which no deal of training shows; of the others a third (80) are valid_seen, 160 are training. A task's seed is
one of the original's: `deal(task.seed)` gives the cards that the original deals for it. Types: sum, product.

Traps of the original (verl-agent's gym_cards), each kept, since its numbers were made with it:
1. A formula of more than five tokens is dead: the game calls the next step truncated, the harness does not look, and the episode
   runs on, without reward, to the rollout's limit of 8 steps.
2. The value is Python's: 5 + + 7 is 12 and wins, 1 and 2 side by side are 12 (no deal has them). Here it is computed by
   `worth`, without `eval`.
3. The parser looks for `"action":` in just this form. Where it is missing, only the last character of the reply counts: "it
   is 7" plays 7. All that follows it counts, so text behind the object can spoil a reply or be harmless.
4. 10 is looked for first and deleted; then a reply is valid if exactly one kind of token is left.

How it differs from the original:
1. The original draws deals from seeds, the same ones in training and validation; here no deal is in two splits, and each is
   there once. `--train-games`, `--seen-games` and `--unseen-games` take fewer than there are, not more.
2. Cards are drawn here, as plain shapes. The text form is our own.
3. The history of observations and actions stands in the prompt as everywhere here (the original shows none:
   --history-length 0), and `invalid` in it for a reply without an action.
"""
import random
import re
import sys
from functools import lru_cache
from pathlib import Path

from seed.envs.base import GameError, Reply, Turn, Words, slots_for
from seed.errors import UserError
from seed.trajectory import Task

SPLITS = ("train", "valid_seen", "valid_unseen")
TOKENS = (*map(str, range(1, 11)), "+", "*", "=")
TARGET, REWARD_WON = 12, 10.0
MOST_TOKENS = 5                         # a longer formula is dead
SUITS = {"H": "hearts", "S": "spades", "D": "diamonds", "C": "clubs"}
HELD_OUT = ((4, 8), (3, 4))             # valid_unseen's pairs of numbers
SEEDS = 8192                            # seeds that are looked through for deals: the rarest comes once in 384
VALID_SEEDS = 65536                     # validation's seeds begin here
INVALID = "invalid"                     # the action of a reply that has none
TASK = "make a formula that is worth 12 from both cards."
KEY = '"action":'


def read(text: str, admissible: tuple[str, ...]) -> Reply:
    """The action of a JSON object, read as the original reads it (see the traps above).

    >>> read('{"thoughts": "5 + 7 = 12", "action": "+"}', TOKENS)
    Reply(action='+', valid=True, admissible=True)
    >>> read('{"thoughts": "5 + 7 = 12", "action": "5+7"}', TOKENS).valid
    False
    """
    text = text.lower()
    tail = text[text.find(KEY):]        # find gives -1 where there is none, and text[-1:] is the last character
    found = {"10"} if "10" in tail else set()
    found |= {token for token in TOKENS if token != "10" and token in tail.replace("10", "")}
    action = found.pop() if len(found) == 1 else INVALID
    return Reply(action, action != INVALID, action in admissible)


WORDS = Words(
    head=("You are an agent who plays a game with two cards. You build a formula one token at a time: the number on a card, each card "
          "once, or + or *. J, Q and K count 10. The token = ends the game: it brings 10 points if the formula is worth 12 and "
          "has used both cards, else nothing.\nYour task is to: "),
    offer="\nThe tokens are: [",
    instruction=(']\nAnswer with one JSON object of two fields, "thoughts" with your reasoning and then "action" with one token, in this '
                 'form: {"thoughts": "...", "action": "..."}'),
    analysis="An agent has finished a game with two cards.",
    read=read)


# --- rules

def numbers(cards: tuple[str, ...]) -> tuple[int, ...]:
    """What cards count. A card is suit and rank: H4, CT (ten), SJ.

    >>> numbers(("H4", "CT", "SJ", "DA"))
    (4, 10, 10, 1)
    """
    return tuple({"A": 1, "T": 10, "J": 10, "Q": 10, "K": 10}.get(card[1]) or int(card[1]) for card in cards)


def deal(seed: int) -> tuple[str, str]:
    """The two cards of a seed, drawn in the original's order: rank, suit, [a coin], suit, a coin.

    First card: rank 2 to K. The second makes 12 with its value: as the quotient (on heads, where the value divides 12) or as
    the difference; so one of + and * always works. On heads of the last coin the two change places.
    """
    rng = random.Random(seed)
    rank, suits = rng.randint(2, 13), list(SUITS)
    first = rng.choice(suits) + "A23456789TJQK"[rank - 1]
    value = min(rank, 10)
    other = TARGET // value if value in (2, 3, 4, 6) and rng.random() <= 0.5 else TARGET - value
    second = rng.choice(suits) + "A23456789T"[other - 1]
    return (second, first) if rng.random() <= 0.5 else (first, second)


def worth(formula: tuple[str, ...]) -> int | None:
    """The value that Python gives the joined tokens, for all formulas that can be worth 12 with two numbers; else None.

    >>> worth(("5", "+", "+", "7")), worth(("3", "*", "4")), worth(("1", "2")), worth(("5", "+", "*", "7"))
    (12, 12, 12, None)
    """
    match = re.fullmatch(r"\+*(\d+)(?:([+*])\+*(\d+))?", "".join(formula))
    if not match:
        return None
    a, operator, b = match.groups()
    return int(a) if b is None else int(a) + int(b) if operator == "+" else int(a) * int(b)


def play(values: tuple[int, ...], formula: tuple[str, ...], action: str) -> tuple[tuple[str, ...], float, bool, bool]:
    """(formula, reward, ended, truncated) after an action; `values` are the cards' numbers."""
    if action not in TOKENS:
        return formula, 0.0, False, False
    if len(formula) > MOST_TOKENS:
        return formula, 0.0, False, True
    if action == "=":       # no single number is worth 12, so both cards were used
        return formula, REWARD_WON * (worth(formula) == TARGET), True, False
    used = [int(token) for token in formula if token.isdigit()]
    if action.isdigit() and used.count(int(action)) >= values.count(int(action)):
        return formula, 0.0, False, False
    return (*formula, action), 0.0, False, False


# --- tasks

@lru_cache(None)
def deals() -> dict[str, list[tuple[int, tuple[str, str]]]]:
    """(seed, cards) of every deal there is, by split, in the order of the seeds. Each deal has its first seed."""
    validation, training = ({}, {})
    for first, seed_of in ((VALID_SEEDS, validation), (0, training)):
        for seed in range(first, first + SEEDS):
            seed_of.setdefault(deal(seed), seed)
    held_out = [cards for cards in validation if tuple(sorted(numbers(cards))) in HELD_OUT]
    seen = [cards for cards in validation if cards not in set(held_out)][::3]
    train = [cards for cards in training if cards not in {*held_out, *seen}]
    return {"train": [(training[cards], cards) for cards in train],
            "valid_seen": [(validation[cards], cards) for cards in seen],
            "valid_unseen": [(validation[cards], cards) for cards in held_out]}


def open_env(config) -> "EZPoints":
    """The game with as many deals as the configuration asks for and there are; says so in one line."""
    if config.data not in ("auto", "made"):
        raise UserError(f"--data {config.data}: this game has no data files, its cards are dealt from seeds: expected auto or made")
    asked = dict(zip(SPLITS, (config.train_games, config.seen_games, config.unseen_games)))
    env = EZPoints(slots_for(config), asked, config.vision)
    kept = {split: len(env.tasks(split)) for split in SPLITS}
    few = " (there are no more)" if any(kept[split] < asked[split] for split in SPLITS) else ""
    print(f"games: deals of two cards: {', '.join(f'{split} {number}' for split, number in kept.items())}{few}", file=sys.stderr)
    return env


class EZPoints:
    name = "ezpoints"

    def __init__(self, slots: int, most: dict[str, int] | None = None, vision: bool = False):
        """most: how many deals of each split to take; None: all."""
        self.slots, self.most, self.vision = slots, most or {}, vision
        self.root = Path("ezpoints-v1")     # names the data; there is no such folder
        self.games = [None] * slots         # (cards, formula)

    def splits(self) -> list[str]:
        return list(SPLITS)

    def tasks(self, split: str) -> list[Task]:
        """Ids say split, seed and cards; sorted by them is sorted by seed."""
        if split not in SPLITS:
            raise UserError(f"no split {split}: expected one of {', '.join(SPLITS)}")
        tasks = [Task(self.name, f"{split}/{seed:05d}-{'-'.join(cards)}", kind(cards), seed=seed) for seed, cards in deals()[split]]
        return sorted(tasks, key=lambda task: task.id)[:self.most.get(split)]

    def reset(self, slot: int, task: Task) -> Turn:
        cards = deal(task.seed)
        if not task.id.endswith(f"{task.seed:05d}-{'-'.join(cards)}"):
            raise GameError(f"{task.id}: seed {task.seed} deals {' and '.join(cards)}")
        self.games[slot] = cards, ()
        return self._turn(slot, description=TASK)

    def step(self, slot: int, action: str) -> Turn:
        cards, formula = self.games[slot]
        formula, reward, ended, _ = play(numbers(cards), formula, action)
        self.games[slot] = cards, formula
        return self._turn(slot, reward=reward, done=ended, won=reward > 0)

    def _turn(self, slot: int, **outcome) -> Turn:
        cards, formula = self.games[slot]
        so_far = f"Formula: {' '.join(formula) or 'empty'}"
        if self.vision:
            from seed.envs.ezpoints_picture import picture
            return Turn(f"The two cards are in the picture. {so_far}", TOKENS, images=(picture(cards, formula),), **outcome)
        shown = ", ".join(f"{card[1].replace('T', '10')} of {SUITS[card[0]]}" for card in cards)
        return Turn(f"Cards: {shown}. {so_far}", TOKENS, **outcome)


def kind(cards: tuple[str, ...]) -> str:
    return "sum" if sum(numbers(cards)) == TARGET else "product"
