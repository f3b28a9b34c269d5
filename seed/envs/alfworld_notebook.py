"""What an ALFWorld episode has shown so far, read from what the agent reads: the rules' memory.

Not in the paper. `parse_goal` reads the task's sentence, `Notebook` the observations that follow each action. The player and
annotator that go by it are in `alfworld_expert.py`; nothing here looks into the game's state.
"""
import re
from dataclasses import dataclass, field
from functools import lru_cache

VERBS = {"pick_clean_then_place_in_recep": ("clean", "sinkbasin"), "pick_heat_then_place_in_recep": ("heat", "microwave"),
         "pick_cool_then_place_in_recep": ("cool", "fridge")}
ITEM = re.compile(r"\ban? ([a-z]+ \d+)")


@dataclass(frozen=True)
class Goal:
    kind: str
    obj: str                  # "mug"
    recep: str                # "shelf"; for look_at_obj_in_light the lamp
    verb: str = ""            # clean, heat, cool or nothing
    tool: str = ""            # the receptacle that does it
    number: int = 1


@lru_cache(None)
def _sentences():
    from alfworld.gen.goal_library import gdict
    from seed.envs.alfworld import TASK_TYPES
    word = dict(obj=r"(?P<obj>\w+)", recep=r"(?P<recep>\w+)", toggle=r"(?P<recep>\w+)")
    return [(kind, re.compile(template.format(**word))) for kind in TASK_TYPES for template in gdict[kind]["templates"]]


def parse_goal(description: str) -> Goal | None:
    """The goal that a task's sentence states; None for a sentence that is none of ALFWorld's templates."""
    for kind, pattern in _sentences():
        if match := pattern.fullmatch(description.strip().rstrip(".")):
            return Goal(kind, match["obj"], match["recep"], *VERBS.get(kind, ("", "")),
                        number=2 if kind == "pick_two_obj_and_place" else 1)
    return None


def kind_of(name: str) -> str:
    """`mug 1` -> `mug`."""
    return name.rsplit(" ", 1)[0]


@dataclass
class Notebook:
    """What an episode has shown so far."""
    goal: Goal
    places: list[str] = field(default_factory=list)            # receptacles, in the order of the first observation
    contents: dict[str, set] = field(default_factory=dict)     # receptacle -> objects last seen in it
    closed: set[str] = field(default_factory=set)
    at: str | None = None
    holding: str | None = None
    came_from: str | None = None                               # where the held object was taken
    found: dict[str, str] = field(default_factory=dict)        # target object -> where it was first seen
    taken: set[str] = field(default_factory=set)               # objects that were picked up
    treated: set[str] = field(default_factory=set)             # targets that are clean, hot or cool, as the goal says
    visits: list[str] = field(default_factory=list)

    def read(self, action: str | None, observation: str) -> None:
        """Take in the observation that followed `action` (None: the first one)."""
        if action is None:
            self.places = ITEM.findall(observation.split("Your task is to:")[0])
            return
        if observation.startswith("Nothing happens"):
            return
        verb = action.split(" ", 1)[0]
        if verb == "go":
            self.at = action.removeprefix("go to ")
            self.visits.append(self.at)
        if verb in ("go", "open", "close"):
            if f"The {self.at} is closed" in observation or verb == "close":
                self.closed.add(self.at)
            else:
                self.closed.discard(self.at)
                self.contents[self.at] = set(ITEM.findall(observation.split("you see")[-1]))
                for item in self.contents[self.at]:
                    if kind_of(item) == self.goal.obj:
                        self.found.setdefault(item, self.at)
        elif verb == "take":
            self.holding, self.came_from = action.removeprefix("take ").split(" from ")
            self.contents.get(self.came_from, set()).discard(self.holding)
            self.taken.add(self.holding)
        elif verb in ("move", "put"):
            self.contents.setdefault(self.at, set()).add(self.holding)
            self.holding = None
        elif verb == self.goal.verb:
            self.treated.add(self.holding)
        elif {verb, self.goal.verb} == {"heat", "cool"}:  # one undoes the other
            self.treated.discard(self.holding)

    def at_kind(self, kind: str) -> list[str]:
        return [place for place in self.places if kind_of(place) == kind]

    def placed(self) -> list[tuple[str, str]]:
        """(target, place) for the targets that are where they belong, as they should be."""
        return [(item, place) for place, items in sorted(self.contents.items()) if kind_of(place) == self.goal.recep
                for item in sorted(items) if kind_of(item) == self.goal.obj and self._ready(item)]

    def wanted(self) -> list[tuple[str, str]]:
        """(target, place) for the targets that were seen and must still be fetched."""
        done = {item for item, _ in self.placed()}
        return [(item, place) for place, items in sorted(self.contents.items()) for item in sorted(items)
                if kind_of(item) == self.goal.obj and item not in done]

    def unseen(self) -> list[str]:
        return [place for place in self.places if place not in self.contents]

    def _ready(self, item):
        return not self.goal.verb or item in self.treated

    def lamp(self) -> str | None:
        return next((place for place, items in sorted(self.contents.items())
                     for item in items if kind_of(item) == self.goal.recep), None)
