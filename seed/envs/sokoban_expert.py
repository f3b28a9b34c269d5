"""A rule-based player and annotator for Sokoban in text form: what `seed/envs/alfworld_expert.py` is for ALFWorld.

Not in the paper. It reads the board's text as the agent does and nothing else; in the vision form it sees nothing. `Notebook`
follows an episode, `decide` says the next move, `hints` reads the pushes off a skill, `hindsight` writes summary and skill. A
careless player mostly wanders about.
"""
import random
import re
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path

from seed.config import Config
from seed.envs.base import tagged
from seed.envs.sokoban import LEGEND, LEVELS_SEED, SHAPE, SHOWN, Sokoban, read_shape
from seed.envs.sokoban_levels import MOVES, Level, draw, floor_plan, make_levels, place, push, read_board, same, solve, write_levels
from seed.trajectory import Trajectory

LEVELS = 200                                           # of a practice set
reply = tagged
CARELESS = 0.5
AIMLESS = 0.8     # share of a careless player's moves without a skill that go anywhere
VAGUE = "Push the box."
SENTENCES = (*(f" {cell} \t" for cell in "#_OX√PS"), "push the box onto the target.", LEGEND, "'\n 'down'\n 'left'\n 'right'")
XSB = {shown: xsb for xsb, shown in SHOWN.items()}     # the board's symbols to those of level files
SIDE = {"up": "below", "down": "above", "left": "right of", "right": "left of"}    # where to stand for a push


def board(observation: str) -> Level | None:
    """The board that an observation shows; None if it shows none."""
    rows = [row.replace(" ", "").replace("\t", "").translate(XSB) for row in observation.split("\n")]
    return read_board(rows) if "\t" in observation else None


@dataclass
class Notebook:
    """What an episode has shown so far."""
    now: Level | None = None
    pushes: list[str] = field(default_factory=list)
    stuck: str | None = None      # the push after which there was no solution any more

    def read(self, action: str | None, observation: str) -> None:
        """Take in the observation that followed `action` (None: the first one)."""
        before, self.now = self.now, board(observation)
        if before and before.boxes != self.now.boxes:
            self.pushes.append(action)
            if self.stuck is None and solve(self.now) is None:
                self.stuck = action


def start(description: str) -> Notebook:
    return Notebook()


def slip(book: Notebook, admissible, rng: random.Random) -> tuple[str, str]:
    """A move without sense."""
    return f"push {rng.choice(list(MOVES))}", rng.choice(admissible)


def hints(skill: str) -> tuple[str, ...]:
    """The pushes that a skill names.

    >>> hints("Go below the box, push it up, up, left.")
    ('up', 'up', 'left')
    """
    named = re.search(r"push (?:it|them) ((?:up|down|left|right)(?:, (?:up|down|left|right))*)", skill)
    return tuple(named[1].split(", ")) if named else ()


def decide(book: Notebook, admissible, rng: random.Random, hints: tuple[str, ...] = (), careless: bool = False) -> tuple[str, str]:
    """(thought, action): what a sensible player does next. `hints`: a skill's pushes, which it makes as long as all pushes so far
    were theirs (one box only)."""
    if book.now is None:
        return "nothing to see", rng.choice(admissible)
    done = len(book.pushes)
    if len(book.now.boxes) == 1 and len(hints) > done and list(hints[:done]) == book.pushes:
        if move := walk(book.now, hints[done]):
            return f"push {hints[done]}", move
    if careless and rng.random() < AIMLESS:
        return "look around", rng.choice(admissible)
    moves = solve(book.now)
    return (f"push {pushes(book.now, moves)[0]}", moves[0]) if moves else ("stuck", rng.choice(admissible))


def walk(level: Level, want: str) -> str | None:
    """The first move of the shortest way that ends with pushing a box in direction `want`; None if there is none."""
    first, queue = {level.player: None}, deque([level.player])
    while queue:
        at = queue.popleft()
        for move in MOVES:
            to, boxes = push(level, at, level.boxes, move)
            if boxes != level.boxes and move == want:
                return first[at] or move
            if boxes == level.boxes and to not in first:
                first[to] = first[at] or move
                queue.append(to)
    return None


def pushes(level: Level, moves: list[str]) -> list[str]:
    """Those of `moves` that push a box."""
    states = [(level.player, level.boxes)]
    for move in moves:
        states.append(push(level, *states[-1], move))
    return [move for move, before, after in zip(moves, states, states[1:]) if before[1] != after[1]]


def hindsight(trajectory: Trajectory, name_places: bool = True) -> tuple[str, str] | None:
    """(summary, skill) of a finished trajectory; None where its observations show no board.

    A success gives its own pushes, a failure those of a shortest solution and what to avoid. Without `name_places` the skill
    names no push of this level.
    """
    book, start = Notebook(), board(trajectory.steps[0].context.observation)
    if start is None:
        return None
    for action, text in [(None, trajectory.steps[0].context.observation), *((s.action, s.observation_after) for s in trajectory.steps)]:
        book.read(action, text)
    it = "it" if len(start.boxes) == 1 else "them"
    way = book.pushes if trajectory.success else pushes(start, solve(start) or [])
    skill = (f"Go {SIDE[way[0]]} the box, push {it} {', '.join(way)}." if name_places and way else
             f"Go to the far side of the box, push {it} to the target.")
    if trajectory.success:
        return f"On target after {len(trajectory.steps)} moves.", skill
    if book.stuck:
        return f"A box was stuck after a push {book.stuck}.", f"{skill} Do not push it too far{f' {book.stuck}' if name_places else ''}."
    return "The moves ran out before all was on target." if book.pushes else "No box was pushed.", skill


def practice(folder: Path, name: str) -> Sokoban:
    """Levels of the default shape: none that is evaluated on, turned or mirrored, and no room of the unseen ones."""
    config = Config()
    made = make_levels(dict(train=config.train_games, valid_seen=config.seen_games, valid_unseen=config.unseen_games), *read_shape(SHAPE), LEVELS_SEED)
    name_of = lambda level: same(draw(level, level.player, level.boxes))
    held_out = {name_of(level) for split in ("valid_seen", "valid_unseen") for level in made[split]}
    room_of = lambda level: same(["".join(" #"[(r, c) in level.walls] for c in range(level.size[1])) for r in range(level.size[0])])
    unseen, rng, levels = {room_of(level) for level in made["valid_unseen"]}, random.Random(f"practice {name}"), []
    while len(levels) < LEVELS:
        level = place(rng, floor_plan(rng, read_shape(SHAPE)[0]), *read_shape(SHAPE))
        if level is not None and name_of(level) not in held_out and room_of(level) not in unseen:
            levels.append(replace(level, optimum=len(solve(level))))
    folder.mkdir(parents=True, exist_ok=True)
    write_levels(folder / "train.xsb", levels)
    return Sokoban(folder, 1, config.max_turns)
