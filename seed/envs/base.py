"""What an environment is to the rest of the code: one page.

An environment plays many episodes at once. It owns a fixed number of `slots`, each of which holds one running game;
the rollout opens a task in a slot (`reset`) and passes it one action after another (`step`). The environment gets the
action's text as `Words.read` extracted it, not the model's reply. Every environment's module has its `WORDS`: what is its own in
the prompts of actor and analyzer, whose structure is the same everywhere (`seed/prompts.py`, `seed/analyzer.py`).
"""
import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Protocol

from seed.trajectory import Task


MOST_SLOTS = 128
CACHE = Path(__file__).parents[2] / "data"   # made games and what was worked out about games: everything in it can be made again


class GameError(Exception):
    """A game that cannot be opened or that crashed. The episode is dropped and counted, and the run goes on."""


@dataclass(frozen=True)
class Turn:
    """What the agent is shown: the next observation and the commands that the game offers."""
    observation: str
    admissible: tuple[str, ...]
    reward: float = 0.0       # r_t of the step that led here
    done: bool = False
    won: bool = False
    description: str = ""     # the task in words; given by `reset`
    score: float | None = None   # how well the task is done, 0 to 1, where the environment says more than won or not
    images: tuple = ()        # what the agent sees, as Pillow images


@dataclass(frozen=True)
class Reply:
    action: str        # what to pass to the environment
    valid: bool        # well formed; otherwise the step pays the invalid-action penalty
    admissible: bool   # one of the offered actions; otherwise the game stays as it is


@dataclass(frozen=True)
class Words:
    head: str                                            # stands before the task's description
    offer: str                                           # stands before the list of admissible actions; "": they are not listed
    instruction: str                                     # the end of the prompt, after that list: the form of the reply
    analysis: str                                        # the first sentence of the analyzer's prompt
    read: Callable[[str, tuple[str, ...]], Reply]        # (the reply's text, the admissible actions) -> Reply; never raises


ACTION, ACTION_END = (re.compile(tag, re.IGNORECASE | re.ASCII) for tag in ("<action>", "</action>"))


def read_action(text: str, admissible: tuple[str, ...], fallback: int = 30) -> Reply:
    """Read <think>...</think><action>...</action>. A reply without an action passes on its last characters, which do nothing.

    It is well formed only if the tags come in order: think closed before the action opens, action closed after it opened. (The
    original pairs the first <action> with the first </action> wherever they stand, even reversed.) Inadmissible actions are
    counted besides; the original never reads its list.

    >>> read_action("<think>It is dark.</think><action>Look</action>", ("look",))
    Reply(action='look', valid=True, admissible=True)
    >>> read_action("I would look.", ("look",)).valid
    False
    """
    opened = ACTION.search(text)
    closed = ACTION_END.search(text, opened.end() if opened else 0)
    if not opened or not closed:
        action, in_order = text[-fallback:].lower().strip(), False
    else:
        action = text[opened.end():closed.start()].lower().strip()
        in_order = thought_before(text, opened.start()) and not ACTION_END.search(text, 0, opened.start()) and not ACTION.search(action)
    return Reply(action, in_order and not chinese(text), action in admissible)


def tagged(thought: str, action: str) -> str:
    """The reply that `read_action` reads."""
    return f"<think>{thought}</think><action>{action}</action>"


def thought_before(text: str, place: int) -> bool:
    """<think> opens, then closes, then comes `place`."""
    return 0 <= text.find("<think>") < text.find("</think>") < place


def chinese(text: str) -> bool:
    """The original's guard against drifting into another language."""
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def slots_for(config) -> int:
    """How many episodes an environment plays at once: an update's, but not more than MOST_SLOTS (an engine takes 1-3 MB)."""
    return min(MOST_SLOTS, config.tasks_per_update * config.group_size)


@contextlib.contextmanager
def new_folder(path: Path):
    """Fill a folder that is there whole or not at all: the block fills another one, which gets the name at the end."""
    unfinished = Path(f"{path}.unfinished-{os.getpid()}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


class Expert(Protocol):
    """What a module `seed/envs/NAME_expert.py` offers: a player and annotator of rules, which reads what the agent could read."""
    SENTENCES: tuple[str, ...]     # texts of the environment that are worth one token each in the tiny tokenizer
    VAGUE: str                     # a skill that helps nobody
    CARELESS: float                # share of careless episodes in what the tiny model learns from

    def start(description: str):
        """A new notebook, which follows an episode of this task by `read(action, observation)` (action None: the first one)."""

    def decide(book, admissible: tuple[str, ...], rng, hints: tuple[str, ...] = (), careless: bool = False) -> tuple[str, str]:
        """(thought, action): what a sensible player does next, or a careless one."""

    def slip(book, admissible: tuple[str, ...], rng) -> tuple[str, str]:
        """(thought, action) at random: the noise in what the tiny model learns from."""

    def hints(skill: str) -> tuple[str, ...]:
        """What a skill of `hindsight` names, as `decide` takes it."""

    def reply(thought: str, action: str) -> str:
        """The reply in the environment's form."""

    def hindsight(trajectory, name_places: bool = True) -> tuple[str, str] | None:
        """(summary, skill) of a finished trajectory; None where its task is none that the rules know. With name_places the skill
        says what was found in this very game; without, only the workflow."""

    def practice(folder: Path, name: str) -> "Environment":
        """Games for pre-training, other ones for every name: none that a policy is evaluated on."""


class Environment(Protocol):
    name: str
    slots: int

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, sorted by id: the same list on every machine. UserError if there are none."""

    def reset(self, slot: int, task: Task) -> Turn:
        """Open `task` in `slot` at its start. Raises GameError."""

    def step(self, slot: int, action: str) -> Turn:
        """Pass one action. An action that is not admissible leaves the game unchanged. Raises GameError."""
