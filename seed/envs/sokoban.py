"""Sokoban: push boxes onto targets, shown as text or as a picture.

In the paper: the vision experiments (6x6, one box, 15 moves). The text form is the original's: a cell is a symbol with a blank on
either side and a tab, rows are lines. In the vision form the picture alone shows the board (`Turn.images`, 56 pixels a
cell: two patches of Qwen2.5-VL each way), the observation's text is the same at every step.

    r_t = -0.1  +1 for a box more on the targets, -1 for one less  +10 if all targets are covered

`won`: all boxes on targets. The game ends then, or after `max_steps` moves; `still` and what was not understood are no moves: they
cost -0.1 each and the rollout's own limit ends the episode.

Splits: valid_seen has new positions in rooms of training, valid_unseen has rooms that training does not have
(`sokoban_levels.py`). Types, by the moves of the shortest solution: short (1-3), middle (4-6), long (7 and more), unrated
(a level file that does not say). Data of one's own: a folder with XSB files, train.xsb, valid_seen.xsb, valid_unseen.xsb, or
folders of these names with .xsb or .txt files inside; Boxoban's `valid` and `test` are taken for the last two.

How it differs from the original (verl-agent's wrapper of gym-sokoban):
1. Training and validation share no level (the original draws both from seeds and may repeat itself); see `sokoban_levels.py`.
2. The picture is drawn here with simple shapes, no tile art, and larger; its legend stands in the task's description.
3. A reply must close its reasoning before its action begins (`base.read_action`). What the action is stays as it was, traps
   included: the first of the words up, down, left, right, still that occurs *as a part* of the action's text, so "go left,
   then up" and "support" are both up.
4. In the vision form the history holds the actions and no pictures (the original shows no history there: --history-length 0).
5. Boxes that stand on targets at the start are counted from the start.
"""
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from seed.envs.base import ACTION, ACTION_END, CACHE, GameError, Reply, Turn, Words, new_folder, slots_for, thought_before
from seed.envs.sokoban_levels import MOVES, Cell, Level, draw, make_levels, push, read_levels, write_levels
from seed.errors import UserError
from seed.trajectory import Task

SPLITS = {"train": ("train",), "valid_seen": ("valid_seen", "valid"), "valid_unseen": ("valid_unseen", "test")}   # and other names
LEVELS_VERSION, LEVELS_SEED = 1, 0     # raise the version when the generator changes: it makes other levels then
SHAPE = "6x6-1"                        # rows x columns - boxes
INVALID = "invalid"                    # the action of a reply that has none
SHOWN = str.maketrans(" .$*@+", "_OX√PS")                                       # XSB's symbols to the original's
LEGEND = " The board: # is a wall, _ floor, O a target, X a box, √ a box on a target, P you, S you on a target."
PICTURE = (" The picture: bricks are walls, a red ring is a target, a brown crate is a box, a green crate a box on a target, the blue "
           "figure is you.")
UNSEEN = "The board is in the picture."


def read(text: str, admissible: tuple[str, ...]) -> Reply:
    """<think>...</think><action>...</action>, its action the first of five words, in this order, that the action's text contains.

    >>> read("<think>The box is left of me.</think><action>Move left</action>", tuple(MOVES))
    Reply(action='left', valid=True, admissible=True)
    """
    opened, closed = ACTION.search(text), ACTION_END.search(text)
    if not opened or not closed:
        return Reply(INVALID, False, False)
    content = text[opened.end():closed.start()].lower()
    action = next((word for word in (*MOVES, "still") if word in content), INVALID)
    valid = action != INVALID and thought_before(text, opened.start()) and not ACTION.search(content)
    return Reply(action, valid, action in admissible)


WORDS = Words(
    head=("You are an agent who plays Sokoban. You walk one cell at a time and push a box by walking into it. You cannot pull a box, nor "
          "push two at once, so a box that stands in a corner or along a wall may be lost.\nYour task is to: "),
    offer="\nYour admissible actions are: [",
    instruction=("]\nFirst reason step by step about the board, inside <think> </think> tags. Then choose one admissible "
                 "action and give it inside <action> </action> tags."),
    analysis="An agent has finished a game of Sokoban.",
    read=read)


def open_env(config) -> "Sokoban":
    """The levels that the configuration asks for, made first where there are none; says in one line which they are."""
    slots = slots_for(config)
    if config.data not in ("auto", "made"):
        root = Path(config.data).resolve()
        env = Sokoban(root, slots, config.max_turns, config.vision)
        if not env.splits():
            raise UserError(f"--data {config.data} has no levels: expected auto, made, or a folder with XSB files like train.xsb or "
                            f"train/000.txt")
        print(f"games: the levels in {root}", file=sys.stderr)
        return env
    numbers = dict(zip(SPLITS, (config.train_games, config.seen_games, config.unseen_games)))
    shape = config.rooms
    root = CACHE / f"sokoban-v{LEVELS_VERSION}-{shape}-{'-'.join(map(str, numbers.values()))}"
    print(f"games: {'levels made earlier, in' if root.is_dir() else f'making {sum(numbers.values())} levels in'} {root}", file=sys.stderr)
    if not root.is_dir():
        made = make_levels(numbers, *read_shape(shape), LEVELS_SEED)
        with new_folder(root) as unfinished:
            unfinished.mkdir(parents=True)
            for split, levels in made.items():
                write_levels(unfinished / f"{split}.xsb", levels)
    return Sokoban(root, slots, config.max_turns, config.vision)


def read_shape(shape: str) -> tuple[tuple[int, int], int]:
    """((rows, columns), boxes) of text like 6x6-1."""
    try:
        size, boxes = shape.split("-")
        (rows, columns), boxes = map(int, size.split("x")), int(boxes)
        if min(rows, columns) < 5 or max(rows, columns) > 20 or not 1 <= boxes <= 5:
            raise ValueError
    except ValueError:
        raise UserError(f"--rooms {shape}: expected rows x columns - boxes, 5 to 20 cells a side and 1 to 5 boxes, like {SHAPE}") from None
    return (rows, columns), boxes


@dataclass
class Game:
    level: Level
    player: Cell
    boxes: frozenset
    moves: int = 0


class Sokoban:
    name = "sokoban"

    def __init__(self, root: Path, slots: int, max_steps: int = 15, vision: bool = False):
        """root: the folder with the level files. max_steps: moves after which a game ends."""
        self.root, self.slots, self.max_steps, self.vision = Path(root), slots, max_steps, vision
        self.games = [None] * slots
        self.known = {}     # file -> its levels

    def files(self, split: str) -> list[Path]:
        places = [f"{name}{rest}" for name in SPLITS.get(split, ()) for rest in (".xsb", ".txt", "/*.xsb", "/*.txt")]
        return sorted(path for place in places for path in self.root.glob(place))

    def splits(self) -> list[str]:
        return [split for split in SPLITS if self.files(split)]

    def levels(self, path: Path) -> list[Level]:
        if path not in self.known:
            self.known[path] = read_levels(path)
        return self.known[path]

    def tasks(self, split: str) -> list[Task]:
        """Ids are the file's path and the level's place in it, from 0."""
        if split not in self.splits():
            raise UserError(f"no split {split} in {self.root}, which has: {', '.join(self.splits())}")
        tasks = [Task(self.name, f"{path.relative_to(self.root).as_posix()}/{i:05d}", kind(level))
                 for path in self.files(split) for i, level in enumerate(self.levels(path))]
        return sorted(tasks, key=lambda task: task.id)

    def reset(self, slot: int, task: Task) -> Turn:
        file, _, place = task.id.rpartition("/")
        try:
            level = self.levels(self.root / file)[int(place)]
        except (UserError, OSError, ValueError, IndexError) as error:
            raise GameError(f"{task.id}: {error}") from error
        self.games[slot] = Game(level, level.player, level.boxes)
        goal = "push the box onto the target." if len(level.boxes) == 1 else f"push the {len(level.boxes)} boxes onto the targets."
        return self._turn(self.games[slot], description=goal + (PICTURE if self.vision else LEGEND))

    def step(self, slot: int, action: str) -> Turn:
        game = self.games[slot]
        if action not in MOVES:
            return self._turn(game, reward=-0.1)
        placed = len(game.boxes & game.level.targets)
        game.player, game.boxes = push(game.level, game.player, game.boxes, action)
        game.moves += 1
        more = len(game.boxes & game.level.targets) - placed
        covered = game.level.targets <= game.boxes
        return self._turn(game, reward=-0.1 + more + 10.0 * covered, done=covered or game.moves == self.max_steps,
                          won=game.boxes <= game.level.targets)

    def _turn(self, game: Game, **outcome) -> Turn:
        rows = tuple(row.translate(SHOWN) for row in draw(game.level, game.player, game.boxes))
        if self.vision:
            return Turn(UNSEEN, tuple(MOVES), images=(picture(rows),), **outcome)
        return Turn(board_text(rows), tuple(MOVES), **outcome)


def kind(level: Level) -> str:
    return "unrated" if level.optimum is None else "short" if level.optimum <= 3 else "middle" if level.optimum <= 6 else "long"


def board_text(rows) -> str:
    return "\n".join("".join(f" {symbol} \t" for symbol in row) for row in rows)


# --- the picture

TILE = 56     # pixels a cell


@lru_cache(4096)
def picture(rows: tuple[str, ...]):
    """The board as a Pillow image. Equal boards share one image, which nobody changes: a group's members often meet."""
    from PIL import Image
    image = Image.new("RGB", (TILE * len(rows[0]), TILE * len(rows)))
    for r, row in enumerate(rows):
        for c, symbol in enumerate(row):
            image.paste(tile(symbol), (TILE * c, TILE * r))
    return image


@lru_cache(None)
def tile(symbol: str):
    """One cell: bricks, floor, ring, crate or figure, in plain shapes."""
    from PIL import Image, ImageDraw
    image = Image.new("RGB", (TILE, TILE), "#f3f0e6")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, TILE - 1, TILE - 1), outline="#d8d4c6")
    if symbol == "#":
        pen.rectangle((0, 0, TILE - 1, TILE - 1), fill="#6b6460")
        for y in range(0, TILE, 14):
            pen.line((0, y, TILE, y), fill="#47423f", width=2)
            for x in range(14 if y % 28 else 0, TILE, 28):
                pen.line((x, y, x, y + 14), fill="#47423f", width=2)
    if symbol in "OS":
        pen.ellipse((4, 4, TILE - 5, TILE - 5), outline="#d22b2b", width=5)
    if symbol in "X√":
        fill, edge = ("#b07b3c", "#5f3d14") if symbol == "X" else ("#4f9d4a", "#1f5a1c")
        pen.rectangle((7, 7, TILE - 8, TILE - 8), fill=fill, outline=edge, width=4)
        pen.line((9, 9, TILE - 10, TILE - 10), fill=edge, width=4)
        pen.line((9, TILE - 10, TILE - 10, 9), fill=edge, width=4)
    if symbol in "PS":
        pen.ellipse((21, 11, 35, 25), fill="#2456c4")
        pen.polygon(((28, 24), (15, 45), (41, 45)), fill="#2456c4")
    return image
