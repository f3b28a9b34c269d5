"""A rule-based player and annotator for EZPoints in text form: what `seed/envs/alfworld_expert.py` is for ALFWorld.

Not in the paper. It reads the cards and the formula in the observation's text as the agent does; in the vision form it sees no
cards. `Notebook` follows an episode, `decide` says the next token, `hints` reads a formula off a skill, `hindsight` writes
summary and skill. A careless player multiplies, whatever the cards.
"""
import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

from seed.envs.ezpoints import MOST_TOKENS, TARGET, TASK, TOKENS, EZPoints, numbers, worth
from seed.trajectory import Trajectory

CARD = re.compile(r"(\w+) of [hsdc]")
NOTHING_YET = "empty"
CARELESS = 0.5
VAGUE = "Use both cards."
SENTENCES = (TASK, "'\n '".join(TOKENS), "Cards:", "Formula:", '{"thoughts": "', '", "action": "', '"}')


@dataclass
class Notebook:
    """What an episode has shown so far. `values`: what the cards count; empty where they are not in the text."""
    values: tuple[int, ...] = ()
    formula: tuple[str, ...] = ()
    actions: list[str] = field(default_factory=list)

    def read(self, action: str | None, observation: str) -> None:
        """Take in the observation that followed `action` (None: the first one)."""
        cards, _, formula = observation.partition("Formula: ")
        self.values = numbers(tuple("S" + rank.replace("10", "T") for rank in CARD.findall(cards)))
        self.formula = tuple(formula.split()) if formula != NOTHING_YET else ()
        if action is not None:
            self.actions.append(action)

    def way(self) -> tuple[str, ...]:
        """A formula worth 12, from the left card to the right one."""
        a, b = self.values
        return str(a), "+" if a + b == TARGET else "*", str(b)


def start(description: str) -> Notebook:
    return Notebook()


def slip(book: Notebook, admissible, rng: random.Random) -> tuple[str, str]:
    """A token without sense."""
    thought = f"{rng.choice(book.values)} {rng.choice('+*')} {rng.choice(book.values)}" if book.values else "no cards to see"
    return thought, rng.choice(admissible)


def reply(thought: str, action: str) -> str:
    return json.dumps({"thoughts": thought, "action": action})


def hints(skill: str) -> tuple[str, ...]:
    """The formula that a skill names.

    >>> hints("Make 3 * 4, then =.")
    ('3', '*', '4')
    """
    named = re.search(r"(\d+) ([+*]) (\d+)", skill)
    return named.groups() if named else ()


def decide(book: Notebook, admissible, rng: random.Random, hints: tuple[str, ...] = (), careless: bool = False) -> tuple[str, str]:
    """(thought, action): what a sensible player does next. `hints`: the formula of a skill.

    It goes on with any beginning of a right formula, either card first; what cannot be mended it ends with =.
    """
    if len(book.values) != 2:
        return "no cards to see", rng.choice(admissible)
    a, operator, b = hints or book.way()
    if careless and not hints:
        operator = "*"
    for way in ((a, operator, b), (b, operator, a)):
        if book.formula == way[:len(book.formula)]:
            return " ".join(way) + (f" = {TARGET}" if worth(way) == TARGET else ""), (*way, "=")[len(book.formula)]
    return "no way back", "="


def hindsight(trajectory: Trajectory, name_places: bool = True) -> tuple[str, str] | None:
    """(summary, skill) of a finished trajectory; None where its observations show no cards.

    The skill is the formula and, after a failure, what to avoid. Without `name_places` it names an operator and no numbers.
    """
    book = Notebook()
    book.read(None, trajectory.steps[0].context.observation)
    if len(book.values) != 2:
        return None
    way, on_cards = book.way(), {str(value) for value in book.values}
    for step in trajectory.steps:
        book.read(step.action, step.observation_after)
    do = "Add" if way[1] == "+" else "Multiply"
    skill = f"Make {' '.join(way)}, then =." if name_places else f"{do} the two cards, then =."
    shown, count = " ".join(book.formula), sum(token.isdigit() for token in book.formula)
    if trajectory.success:
        return f"{shown} was worth {TARGET}.", skill
    wrong = sorted({a for a in book.actions if a.isdigit()} - on_cards, key=int)
    if len(book.formula) > MOST_TOKENS:
        return "The formula became too long.", f"{skill} Three tokens are enough."
    if book.actions[-1] != "=":
        return f"The formula {shown or 'without a token'} was not ended.", f"{skill} Do not forget =."
    if count < 2:
        avoid = f" {wrong[0]} is on no card." if wrong and name_places else " Take both numbers from the cards." if wrong else ""
        return "The formula was ended before both cards were used.", skill + (avoid or " Use both cards before =.")
    if worth(book.formula) is None or not {"+", "*"} & set(book.formula):
        return f"{shown} is no formula.", f"{skill} Put one sign between the numbers."
    return f"{shown} is {worth(book.formula)}, not {TARGET}.", f"{skill} Do not {'multiply' if do == 'Add' else 'add'}."


def practice(folder: Path, name: str) -> EZPoints:
    """The training deals: there are too few deals to have others."""
    return EZPoints(1)
