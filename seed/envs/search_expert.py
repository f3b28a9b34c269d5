"""A rule-based player and annotator for the generated world: what `seed/envs/alfworld_expert.py` is for ALFWorld.

Not in the paper. It pre-trains a tiny model and writes the hindsight skills of Stage 1 where no large model is at hand. It reads what the
agent could read: the question and the passages that were shown. (The sentences' forms are those of `search_world.py`; for a question of
another form there is no goal and no skill.)

`Notebook` follows an episode and knows which facts were shown. `decide` says the next sensible action, `slip` a senseless one, for noise.
`hindsight` writes summary and skill of a finished trajectory.
"""
import json
import random
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from seed.config import ENVIRONMENTS
from seed.envs.search import FORMS, extract_answer
from seed.envs.search_world import CHAINS, PASSAGES, SYLLABLES, wording
from seed.trajectory import Trajectory

QUESTIONS = 160   # of a practice set
CARELESS = 0.5
VAGUE = "Search, then answer."
# For the tiny tokenizer: the forms, and all names of two syllables, so that what a passage says is copied in one token or two.
SENTENCES = (*(first.capitalize() + second for first in SYLLABLES for second in SYLLABLES), "'\n '".join(FORMS.values()), *FORMS.values(),
             '<information>{"result": "Doc 1:', *(f"\\nDoc {n}:" for n in (2, 3)), '\\n"}</information>', "<search>",
             "</search>", "<answer>", "</answer>")
NAME = r"[A-Z][a-z]+(?: [A-Z][a-z]+)?"
WHAT = {"birth": "the town of birth", "death": "the town of death", "teacher": "the teacher", "author": "the writer",
        "founder": "the founder", "seat": "the town", "region": "the region", "river": "the river", "capital": "the capital"}


@dataclass(frozen=True)
class Goal:
    chain: tuple[str, ...]    # the relations to follow
    subject: str              # the name in the question
    text: str


@lru_cache(None)
def _patterns():
    """(chain, pattern of its question) for all chains, and the patterns of the passages' sentences."""
    questions = [(chain, re.compile(re.escape(wording(chain, "NAME")).replace("NAME", f"({NAME})"))) for chain in CHAINS]
    return questions, [re.compile(re.sub(r"\\{(\w+)\\}", rf"(?P<\1>{NAME})", re.escape(text))) for text in PASSAGES.values()]


def parse_question(text: str) -> Goal | None:
    """The goal that a question states; None for a question of another form."""
    for chain, pattern in _patterns()[0]:
        if match := pattern.fullmatch(text.strip()):
            return Goal(chain, match[1], text.strip())
    return None


@dataclass
class Notebook:
    """What an episode has shown so far."""
    goal: Goal
    facts: dict[tuple[str, str], str] = field(default_factory=dict)   # (relation, subject) -> object, as in the passages shown
    queries: list[str] = field(default_factory=list)
    answer: str | None = None

    def read(self, action: str | None, observation: str) -> None:
        """Take in the observation that followed `action` (None: the first one)."""
        action = action or ""
        if action.startswith("<answer>"):
            self.answer = extract_answer(action)
        elif action:
            self.queries.append(action.removeprefix("<search>").removesuffix("</search>"))
        if observation.startswith("<information>"):
            text = json.loads(observation.removeprefix("<information>").removesuffix("</information>"))["result"]
            for pattern in _patterns()[1]:
                for match in pattern.finditer(text):
                    found = match.groupdict()
                    name = found.pop("name")
                    self.facts.update({(relation, name): thing for relation, thing in found.items()})

    def path(self, bridge: str | None = None) -> list[str]:
        """The names along the question's chain, as far as they are known: the subject, the bridge (which may be given), the answer."""
        names, given = [self.goal.subject], [bridge] * (len(self.goal.chain) - 1) + [None]
        for relation, hint in zip(self.goal.chain, given):
            if (thing := self.facts.get((relation, names[-1]), hint)) is None:
                break
            names.append(thing)
        return names

    def seen(self) -> list[str]:
        """All names that passages stated something with, sorted."""
        return sorted({name for (_, subject), thing in self.facts.items() for name in (subject, thing)})


def decide(book: Notebook, admissible, rng: random.Random, hints: tuple[str, ...] = (), careless: bool = False) -> tuple[str, str]:
    """(thought, action): what a sensible player does next. `hints`: the bridge, as a skill may name it (`hints`, below).

    A careless one answers with some name in the passage of the question's subject, whatever is asked for.
    """
    goal, path = book.goal, book.path(hints[0] if hints else None)
    stated = sorted(thing for (_, subject), thing in book.facts.items() if subject == goal.subject)
    if careless and stated:
        return "answer now", f"<answer>{rng.choice(stated)}</answer>"
    if len(path) > len(goal.chain):
        return f"answer {WHAT[goal.chain[-1]]}", f"<answer>{path[-1]}</answer>"
    missing = WHAT[goal.chain[len(path) - 1]]
    if not any("<search>" in form for form in admissible):
        return f"guess {missing}", f"<answer>{rng.choice(book.seen() or path)}</answer>"
    # The name alone; where that was tried, with what is missing.
    query = path[-1] if path[-1] not in book.queries else f"{path[-1]} {missing}"
    return f"find {missing}", f"<search>{query}</search>"


def slip(book: Notebook, admissible, rng: random.Random) -> tuple[str, str]:
    """A reply without sense: a repeated search, a search or an answer for any name met so far."""
    name = rng.choice([book.goal.subject, *book.seen()])
    if not any("<search>" in form for form in admissible) or rng.random() < 0.3:
        return "answer now", f"<answer>{name}</answer>"
    return f"find {rng.choice(list(WHAT.values()))}", f"<search>{rng.choice([name, name, book.goal.text])}</search>"


def start(description: str) -> Notebook:
    return Notebook(parse_question(description))


def reply(thought: str, action: str) -> str:
    return f"<think>{thought}</think>{action}"


def hints(skill: str) -> tuple[str, ...]:
    """The bridge that a skill of `hindsight` names, if it does."""
    return tuple(re.findall(f"search ({NAME})", skill))


def hindsight(trajectory: Trajectory, name_places: bool = True) -> tuple[str, str] | None:
    """(summary, skill) of a finished trajectory; None for a question of another form.

    A success gives the workflow, a failure what to do instead and what to avoid. `name_places`: the skill also names the bridge, where it
    was found (the paper's "decisive observations"); without, only the workflow. It never names the answer.
    """
    goal = parse_question(trajectory.task.description)
    if goal is None:
        return None
    book = Notebook(goal)
    for step in trajectory.steps:
        book.read(step.action, step.observation_after)
    path, wanted = book.path(), WHAT[goal.chain[-1]]
    skill = f"Search {goal.subject if name_places else 'the name in the question'}, "
    if len(goal.chain) == 2:
        known = name_places and len(path) > 1
        skill += f"find {WHAT[goal.chain[0]]}, search {path[1] if known else 'that name'}, "
    skill += f"answer {wanted}."
    if trajectory.success:
        return f"The agent found {wanted} with {_searches(book)}.", skill

    other = next((relation for (relation, _), thing in sorted(book.facts.items()) if thing == book.answer), None)
    if book.answer is None:
        return f"The agent made {_searches(book)} and did not answer.", f"{skill} Answer on the last turn."
    if not book.queries:
        return "The agent answered without a search.", f"{skill} Do not answer before you search."
    if len(goal.chain) == 2 and len(path) > 1 and book.answer == path[1]:
        return f"The agent answered {WHAT[goal.chain[0]]}, not {wanted}.", f"{skill} Do not answer {WHAT[goal.chain[0]]}."
    if other and other not in goal.chain:
        return f"The agent answered {WHAT[other]}, not {wanted}.", f"{skill} Do not answer {WHAT[other]}."
    return f"The agent answered before it found {wanted}.", f"{skill} Do not guess."


def _searches(book):
    return f"{len(book.queries)} search" + ("es" if len(book.queries) != 1 else "")


def practice(folder: Path, name: str):
    """Another made world: other people and places, the same kinds of question."""
    from seed.envs.search import SearchQA
    from seed.envs.search_data import find_corpus, read_corpus, read_questions
    from seed.envs.search_retrievers import Bm25
    from seed.envs.search_world import write_world
    write_world(folder, {"train": QUESTIONS, "valid_seen": 0, "valid_unseen": 0}, f"practice {name}")
    return SearchQA(folder, read_questions(folder), Bm25(read_corpus(find_corpus(folder))), 1, ENVIRONMENTS["search"]["max_turns"])
