"""Sokoban's puzzles: rules, level files, a solver and a generator. What is played around them is in `sokoban.py`.

In the paper: the rooms of its vision experiments, 6x6 with one box. A state is (player, boxes); a cell is (row, column); boxes are
alike. Level files are XSB, the standard text form: # wall, @ player, $ box, . target, + player on a target, * box on a
target, blank (or - or _) floor.

The generator plays backwards. It starts from a solved room, every box on its target, and pulls the boxes away; what was
pulled can be pushed back, so every level has a solution. `solve` finds the shortest one in single moves, and its length is
stored with the level.

How it differs from the original (gym-sokoban as verl-agent calls it):
1. Random numbers come from one stream of its own for a whole set of levels: no global generator, and no retry with a seed from
   `hash(str)`, which differs from process to process, so that members of a group could get different rooms. The method and
   its numbers are the same, the levels are not.
2. No level is in a set twice, turned and mirrored ones included (of 1,000 original seeds 106 repeat a level), none is in two
   splits, and no room of valid_unseen is one of training, turned or mirrored.
3. Levels of a file are checked: closed room, one player, as many boxes as targets, not solved already.
"""
import random
import re
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from seed.errors import UserError

Cell = tuple[int, int]
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
DEPTH = 30                    # pulls and walks of reverse play, less two
MOST_STATES = 300_000         # of reverse play
TRIES = 400                   # draws in a row without a new level, after which there are too few of that size
OPTIMUM = re.compile(r"optimum (\d+)")


@dataclass(frozen=True)
class Level:
    """A room, and where everything stands at the start."""
    size: tuple[int, int]        # rows, columns
    walls: frozenset
    targets: frozenset
    player: Cell
    boxes: frozenset
    optimum: int | None = None   # moves of the shortest solution, where it is known


# --- rules

def push(level: Level, player: Cell, boxes: frozenset, move: str) -> tuple[Cell, frozenset]:
    """(player, boxes) after a move: walk, or push the box ahead if the cell behind it is free; else all stay."""
    (r, c), (dr, dc) = player, MOVES[move]
    ahead, behind = (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
    if ahead in boxes:
        return (player, boxes) if behind in level.walls or behind in boxes else (ahead, boxes - {ahead} | {behind})
    return (player if ahead in level.walls else ahead), boxes


def solve(level: Level, most_states: int | None = None) -> list[str] | None:
    """A shortest solution in single moves, pushes and walks, by breadth-first search; None if there is none (or none among the
    first `most_states` states)."""
    came = {(level.player, level.boxes): None}     # state -> (the state before, move)
    queue = deque(came)
    while queue and (most_states is None or len(came) <= most_states):
        state = queue.popleft()
        if state[1] == level.targets:
            moves = []
            while came[state]:
                state, move = came[state]
                moves.append(move)
            return moves[::-1]
        for move in MOVES:
            after = push(level, *state, move)
            if after not in came:
                came[after] = state, move
                queue.append(after)
    return None


# --- level files

def draw(level: Level, player: Cell, boxes: frozenset) -> list[str]:
    """The room as rows of XSB symbols."""
    def symbol(cell):
        if cell in level.walls:
            return "#"
        kind = 2 if cell == player else 1 if cell in boxes else 0
        return ".*+"[kind] if cell in level.targets else " $@"[kind]
    return ["".join(symbol((r, c)) for c in range(level.size[1])) for r in range(level.size[0])]


def read_board(rows: list[str], optimum: int | None = None) -> Level:
    """A level from rows of XSB symbols. Floor outside the room is taken for wall. ValueError says what is wrong."""
    width = max(map(len, rows))
    cells = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row.ljust(width))}
    found = lambda symbols: frozenset(cell for cell, symbol in cells.items() if symbol in symbols)
    walls, targets, boxes, players = found("#"), found(".*+"), found("$*"), found("@+")
    if len(players) != 1:
        raise ValueError(f"{len(players)} players, expected one")
    # Flood from the rim inwards: what it reaches is outside, and nothing may stand there.
    rim = {(r, c) for r, c in cells if r in (0, len(rows) - 1) or c in (0, width - 1)} - walls
    outside, left = set(rim), list(rim)
    while left:
        r, c = left.pop()
        for near in ((r + dr, c + dc) for dr, dc in MOVES.values()):
            if near in cells and near not in walls and near not in outside:
                outside.add(near)
                left.append(near)
    if outside & (players | boxes | targets):
        raise ValueError("the room is not closed by walls")
    return Level((len(rows), width), walls | outside, targets, *players, boxes, optimum)


def read_levels(path: Path) -> list[Level]:
    """The levels of an XSB file, in order; lines that are no board separate them. A line above a board that says `optimum 7` gives
    the length of its shortest solution. UserError names the file, the level and its line."""
    levels, rows, optimum = [], [], None
    for number, line in enumerate([*Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), ""], 1):
        if set(line) <= set("#@+$*.-_ ") and "#" in line:
            rows.append(line.rstrip().replace("-", " ").replace("_", " "))
            continue
        if rows:
            try:
                level = read_board(rows, optimum)
                if not level.boxes or len(level.boxes) != len(level.targets):
                    raise ValueError(f"{len(level.boxes)} boxes and {len(level.targets)} targets, expected as many of both, at least one")
                if level.boxes == level.targets:
                    raise ValueError("it is solved already")
                levels.append(level)
            except ValueError as error:
                raise UserError(f"{path}, level {len(levels) + 1} (line {number - len(rows)}): {error}: mend it or delete it") from None
            rows, optimum = [], None
        if match := OPTIMUM.search(line):
            optimum = int(match[1])
    if not levels:
        raise UserError(f"{path} has no Sokoban level: expected rows of the symbols # @ + $ * . and blank (XSB)")
    return levels


def write_levels(path: Path, levels: list[Level]) -> None:
    boards = [f"; {i} optimum {level.optimum}\n" + "\n".join(draw(level, level.player, level.boxes)) for i, level in enumerate(levels)]
    path.write_text("\n\n".join(boards) + "\n", encoding="utf-8")


# --- generator

# What is dug out around each position of the walk: a row, a column, two corners, a block of four.
MASKS = (((0, -1), (0, 0), (0, 1)), ((-1, 0), (0, 0), (1, 0)), ((0, -1), (0, 0), (1, 0)), ((0, 0), (0, 1), (1, 0)),
         ((0, -1), (0, 0), (1, -1), (1, 0)))


def floor_plan(rng: random.Random, size: tuple[int, int]) -> list[Cell]:
    """The floor cells of a room, sorted: a walk of 1.7 (rows + columns) steps, turning with probability 0.35, digs a mask at
    each step. The rim stays wall."""
    rows, columns = size
    inner = lambda r, c: (min(max(r, 1), rows - 2), min(max(c, 1), columns - 2))
    at, direction, floor = (rng.randint(1, rows - 1), rng.randint(1, columns - 1)), rng.choice(list(MOVES.values())), set()
    for _ in range(int(1.7 * (rows + columns))):
        if rng.random() < 0.35:
            direction = rng.choice(list(MOVES.values()))
        at = inner(at[0] + direction[0], at[1] + direction[1])
        floor |= {(at[0] + r, at[1] + c) for r, c in rng.choice(MASKS)}
    return sorted(cell for cell in floor if cell == inner(*cell))


def reverse_play(floor: list[Cell], targets: list[Cell], player: Cell) -> tuple[int, Cell, tuple[Cell, ...]] | None:
    """(displacement, player, boxes) of the best state that pulling reaches, depth first; box i belongs to target i.

    score = how often another box was pulled than before  x  sum over the boxes of their Manhattan distance to their target,
    and 0 while a target is covered; the first state with the best score wins. None if no score is above 0.
    """
    free, best, best_score, seen = set(floor), None, 0, set()
    stack = [(player, tuple(targets), None, 0, DEPTH - 2)]   # player, boxes, the box pulled last, changes, moves left
    while stack and len(seen) < MOST_STATES:
        player, boxes, last, changes, left = stack.pop()
        if (player, boxes) in seen:
            continue
        seen.add((player, boxes))
        displacement = sum(abs(b[0] - t[0]) + abs(b[1] - t[1]) for b, t in zip(boxes, targets))
        if changes * displacement > best_score and not {player, *boxes} & set(targets):
            best, best_score = (displacement, player, boxes), changes * displacement
        for r, c in reversed(MOVES.values() if left else ()):
            to, behind = (player[0] + r, player[1] + c), (player[0] - r, player[1] - c)
            if to not in free or to in boxes:
                continue
            if behind in boxes:     # the box follows to where the player stood
                i = boxes.index(behind)
                stack.append((to, (*boxes[:i], player, *boxes[i + 1:]), i, changes + (i != last), left - 1))
            else:
                stack.append((to, boxes, last, changes, left - 1))
    return best


def place(rng: random.Random, floor: list[Cell], size: tuple[int, int], number: int) -> Level | None:
    """A level with `number` boxes in a room, or None where the draw allows none. A short walk hides where the last pull ended."""
    if len(floor) < number + 2:
        return None
    player, *targets = rng.sample(floor, number + 1)
    best = reverse_play(floor, targets, player)
    if best is None:
        return None
    displacement, player, boxes = best
    walked, go_on = [player], 0.8 if displacement == 1 else 0.5
    while len(walked) <= 3 and (len(walked) == 1 or rng.random() < go_on):
        near = [(player[0] + r, player[1] + c) for r, c in MOVES.values()]
        near = [cell for cell in near if cell in floor and cell not in boxes and cell not in walked]
        if not near:
            break
        player = rng.choice(near)
        walked.append(player)
    walls = frozenset((r, c) for r in range(size[0]) for c in range(size[1])) - frozenset(floor)
    return Level(size, walls, frozenset(targets), player, frozenset(boxes))


def same(rows: list[str]) -> str:
    """One name for a board and for its seven turned and mirrored versions."""
    versions = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*rows[::-1])]     # a quarter turn
        versions += ["\n".join(rows), "\n".join(row[::-1] for row in rows)]
    return min(versions)


def make_levels(numbers: dict[str, int], size: tuple[int, int], boxes: int, seed: int) -> dict[str, list[Level]]:
    """Levels for train, valid_seen (new positions in training's rooms) and valid_unseen (rooms that training does not have)."""
    rng, rooms, known, levels = random.Random(f"sokoban {size} {boxes} {seed}"), [], set(), {split: [] for split in numbers}
    trained = set()      # names of training's rooms
    for split, wanted in numbers.items():
        tries = 0
        while len(levels[split]) < wanted:
            tries += 1
            if tries > TRIES:
                raise UserError(f"only {len(levels[split])} of {wanted} different {split} levels of {size[0]}x{size[1]} with {boxes} "
                                f"box(es) were found: ask for fewer games or a larger room")
            floor = rng.choice(rooms) if split == "valid_seen" else floor_plan(rng, size)
            room = same(["".join("# "[(r, c) in floor] for c in range(size[1])) for r in range(size[0])])
            level = place(rng, floor, size, boxes) if split != "valid_unseen" or room not in trained else None
            if level is None or (name := same(draw(level, level.player, level.boxes))) in known:
                continue
            known.add(name)
            if split == "train":
                trained.add(room)
                rooms.append(floor)
            levels[split].append(replace(level, optimum=len(solve(level))))
            tries = 0
    return levels
