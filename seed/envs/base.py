"""What an environment is to the rest of the code: one page.

An environment plays many episodes at once. It owns a fixed number of `slots`, each of which holds one running game;
the rollout opens a task in a slot (`reset`) and passes it one action after another (`step`). The environment gets the
action's text as the parser extracted it (`seed/prompts.py`), not the model's reply.
"""
from dataclasses import dataclass
from typing import Protocol

from seed.trajectory import Task


class GameError(Exception):
    """A game that cannot be opened or that crashed. The episode is dropped and counted, and the run goes on."""


@dataclass(frozen=True)
class Turn:
    """What the agent is shown: the next observation and the commands that the game offers."""
    observation: str
    admissible: tuple[str, ...]
    reward: float = 0.0
    done: bool = False
    won: bool = False
    description: str = ""     # the task in words; given by `reset`


class Environment(Protocol):
    name: str
    slots: int

    def tasks(self, split: str) -> list[Task]:
        """All tasks of a split, sorted by id: the same list on every machine. UserError if there are none."""

    def reset(self, slot: int, task: Task) -> Turn:
        """Open `task` in `slot` at its start. Raises GameError."""

    def step(self, slot: int, action: str) -> Turn:
        """Pass one action. An action that is not admissible leaves the game unchanged. Raises GameError."""
