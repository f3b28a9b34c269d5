"""A rule-based player and annotator for ALFWorld: the tiny model's teacher before Stage 1, and Stage 1's `expert`.

Not in the paper. The paper starts from an instruct model and has a large external model write the hindsight skills of
Stage 1. On a laptop both are replaced by rules that read what the agent could read: the task's sentence, observations
and actions. Nothing here looks into the game's state.

`alfworld_notebook.py` follows an episode and knows what was seen where. `decide` says the next sensible action (used to pre-train the
tiny model, with noise on top: `seed/tiny.py`). `hindsight` writes summary and skill of a finished trajectory.
"""
import random
import re
from pathlib import Path

from seed.envs.alfworld_notebook import Notebook, kind_of, parse_goal
from seed.envs.base import tagged
from seed.trajectory import Trajectory

# For the tiny tokenizer; words that follow keep their leading blank. (Some are in seed/tiny.py's EVERYWHERE, too: their order here is
# that of the shipped model's ids.)
SENTENCES = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a",
    "\n\nYour task is to:", "You arrive at", ". On the", ", you see a", ", you see nothing.", ", and a", ", a",
    " is open. In it, you see a", " is open. In it, you see nothing.", " is closed.", "You pick up the", "You move the",
    "', Action", "']\n[Observation", "'\n 'go to", '{"episode_summary": "', '", "episode_skill": "', '."}',
    "<think>", "</think>", "<action>", "</action>")
GAMES, RECEPTACLES, OBJECTS, LAYOUTS = 48, (4, 7), (4, 8), (6, 0)   # of a practice set
reply = tagged
CARELESS = 0.5
VAGUE = "Find it, take it, put it."


def start(description: str) -> Notebook:
    return Notebook(parse_goal(description))


def hints(skill: str) -> tuple[str, ...]:
    """The places that a skill says to look in.

    >>> hints("Find mug in shelf 1 or desk 2, take it, put it in shelf 3.")
    ('shelf 1', 'desk 2')
    """
    return tuple(re.findall(r"[a-z]+ \d+", skill.split(", take")[0]))


def slip(book: Notebook, admissible, rng: random.Random) -> tuple[str, str]:
    """A reply without sense."""
    goal = book.goal
    return rng.choice([f"{verb} {goal.obj}" for verb in ("find", "take", "put", goal.verb) if verb]), rng.choice(admissible)


def decide(book: Notebook, admissible, rng: random.Random, hints: tuple[str, ...] = (), careless: bool = False) -> tuple[str, str]:
    """(thought, action): what a sensible player does next. `hints`: places to look in first, as a skill may name them.

    A careless one forgets that the object is to be cleaned, heated or cooled, and looks where it has looked before.
    """
    goal, holding = book.goal, book.holding
    search = lambda thing: (f"find {thing}", _search(book, admissible, rng, hints, careless))
    if holding and kind_of(holding) != goal.obj:
        drops = [a for a in admissible if a.startswith(("move ", "put "))]
        return f"put away {kind_of(holding)}", drops[0] if drops else _go(book, book.came_from, admissible, rng)
    if holding and goal.verb and holding not in book.treated and not careless:
        tool = f"{goal.tool} 1"
        action = f"{goal.verb} {holding} with {tool}"
        return f"{goal.verb} {goal.obj}", action if action in admissible else _go(book, tool, admissible, rng)
    if holding and goal.kind == "look_at_obj_in_light":
        if place := book.lamp():
            use = [a for a in admissible if a.startswith("use ")]
            return f"use {goal.recep}", use[0] if use else _go(book, place, admissible, rng)
        return search(goal.recep)
    if holding:
        # The second of two goes to where the first one is.
        place = next((p for _, p in book.placed()), None) or next(
            (p for p in book.at_kind(goal.recep) if p == book.at), None) or (book.at_kind(goal.recep) or [None])[0]
        drops = [a for a in admissible if re.match(f"(move|put) {holding} (to|in/on|in|on) {place}$", a)]
        return f"put {goal.obj}", drops[0] if drops else _go(book, place, admissible, rng)
    if wanted := book.wanted():
        item, place = next((w for w in wanted if w[1] == book.at), wanted[0])
        action = f"take {item} from {place}"
        return f"take {goal.obj}", action if action in admissible else _go(book, place, admissible, rng)
    return search(goal.obj)


def _go(book, place, admissible, rng):
    if f"open {book.at}" in admissible and place == book.at:
        return f"open {book.at}"
    action = f"go to {place}"
    return action if action in admissible else rng.choice(admissible)


def _search(book, admissible, rng, hints, careless):
    if book.at in book.closed and f"open {book.at}" in admissible:
        return f"open {book.at}"
    left = book.places if careless else book.unseen()
    named = [place for place in hints if place in left]
    return _go(book, rng.choice(named or left or book.places), admissible, rng)


def hindsight(trajectory: Trajectory, name_places: bool = True) -> tuple[str, str] | None:
    """(summary, skill) of a finished trajectory; None if its task's sentence is not one of the templates.

    A success gives the workflow, a failure what to do instead and what to avoid. `name_places`: the skill also says where
    this game's object was seen (the paper's "decisive observations"); without, only the workflow.
    """
    goal = parse_goal(trajectory.task.description)
    if goal is None:
        return None
    book = Notebook(goal)
    book.read(None, trajectory.steps[0].context.observation)
    for step in trajectory.steps:
        book.read(step.action, step.observation_after)

    where = sorted(set(book.found.values()))[:2] or book.unseen()[:3]
    lamp = book.lamp() if goal.kind == "look_at_obj_in_light" else None
    recep = next((p for _, p in book.placed()), f"{goal.recep} 1")
    find, last = f"Find {goal.obj}", f"put {'both' if goal.number == 2 else 'it'} in {recep if name_places else goal.recep}"
    if name_places and where:
        find += " in " + (" and " if book.found else " or ").join(where)
    if goal.kind == "look_at_obj_in_light":
        last = f"use {goal.recep}" + (f" in {lamp}" if lamp and name_places else "")
    skill = ", ".join([find, "take it", *([f"{goal.verb} it with {goal.tool}"] if goal.verb else []), last]) + "."
    if trajectory.success:
        return f"The {goal.obj} task was done in {len(trajectory.steps)} steps.", skill

    # What to avoid: a wrong object that was taken, or a place gone back to where nothing was to be done.
    wrong = sorted({kind_of(item) for item in book.taken} - {goal.obj})
    useful = {*where, lamp, *(p for p in book.places if kind_of(p) in (goal.recep, goal.tool))}
    idle = sorted((p for p in set(book.visits) - useful if book.visits.count(p) > 1), key=lambda p: (-book.visits.count(p), p))
    if not name_places:
        idle = [kind_of(p) for p in idle if kind_of(p) not in {kind_of(u) for u in useful if u}]
    if wrong:
        skill += f" Do not take {wrong[0]}."
    elif idle:
        skill += f" Do not go back to {idle[0]}."
    return f"The {goal.obj} {_what_is_missing(book)}.", skill


def practice(folder: Path, name: str):
    """Made games whose layouts are none of those that `alfworld_games` makes for training and evaluation."""
    from seed.envs.alfworld import GAMES_SEED, AlfWorld
    from seed.envs.alfworld_games import LAYOUTS_PER_ROOM, Difficulty, make_all_layouts, make_games
    reserved: set = set()
    make_all_layouts(Difficulty(), GAMES_SEED, LAYOUTS_PER_ROOM, reserved)
    make_games(folder, {"train": GAMES}, Difficulty(RECEPTACLES, OBJECTS), name, None, LAYOUTS, reserved)
    return AlfWorld(folder, 1, None)


def _what_is_missing(book: Notebook) -> str:
    """How far a failed episode came, in words that follow "The mug ..."."""
    goal, targets = book.goal, {item for item in book.taken if kind_of(item) == book.goal.obj}
    if not book.found:
        return "was not found"
    if not targets:
        return "was seen but not taken"
    if goal.kind == "look_at_obj_in_light":
        return f"was taken but the {goal.recep} was not used with it in hand"
    if goal.verb and not targets & book.treated:
        return f"was taken but the agent did not {goal.verb} it"
    if goal.number == 2 and book.placed():
        return f"was brought to the {goal.recep} only once"
    return f"was not brought to the {goal.recep}"
