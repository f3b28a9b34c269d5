"""A rule-based player and annotator for WebShop: the tiny model's teacher before Stage 1, and Stage 1's `expert`.

Not in the paper; see `seed/envs/alfworld_expert.py`, its counterpart for ALFWorld. The rules read what the agent could read: the
task's sentence, pages and actions. `Notebook` follows an episode, `decide` says the next sensible action, `hindsight` writes a trajectory's skill.
"""
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

from seed.envs.base import tagged
from seed.envs.webshop import WebShop, parse_action
from seed.envs.webshop_made import CATEGORIES, make_products
from seed.trajectory import Trajectory

GOALS = 160                                     # of a practice set
reply = tagged
CARELESS = 0.5
VAGUE = "Search it, open it, buy it."
# For the tiny tokenizer: what stands on pages, the made shop's own phrases, and digits in pairs, so that a name is copied in one
# token and a product's id in three.
PHRASES = sorted({phrase.lower() for _, groups, attributes in CATEGORIES.values() for kinds, options in groups.values()
                  for phrase in (*kinds.split(", "), *attributes.split(", "), *sum(options.values(), ())) if not phrase.isdigit()})
SENTENCES = (*PHRASES, *map(str.title, PHRASES), *(f"{n:02}" for n in range(100)), "'Back to Search' [SEP] 'Page 1 (Total results:",
             "'Back to Search' [SEP] '< Prev' [SEP] '", "' [SEP] 'Price: $", "' [SEP] '$",
             "' [SEP] 'Rating: N.A.' [SEP] 'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'", "' [SEP] '", "]'\n 'click[",
             "click[back to search]'\n 'click[< prev]'\n 'click[description]'\n 'click[features]'\n 'click[reviews]'\n 'click[buy now]'\n 'click[",
             "Find me", ", and price lower than", ".00 dollars", "<action>click[", "<action>search[", "]</action>")
SENTENCE = re.compile(r"(?:find me )?(?P<what>.+?)(?: with (?P<options>[^:]+: .+?))?"
                      r"(?:, and price lower than (?P<limit>\d+\.\d+) dollars)?", re.IGNORECASE | re.DOTALL)
MARKS = {"Search": "search", "Next >": "results", "Buy Now": "item"}    # texts that only these pages have
PATIENCE = 11                                   # steps after which it buys what it has open


@dataclass(frozen=True)
class Wish:
    what: str                                   # "quick drying, slim fit hoodie"
    options: dict[str, str]                     # {name: value}
    limit: float                                # dollars


def parse_goal(description: str) -> Wish:
    """What a task's sentence asks for; options are only found in synthetic ones.

    >>> parse_goal("Find me slim fit hoodie with color: red, and size: large, and price lower than 40.00 dollars")
    Wish(what='slim fit hoodie', options={'color': 'red', 'size': 'large'}, limit=40.0)
    """
    found = SENTENCE.fullmatch(description.strip() or "-")
    options = dict(option.partition(": ")[::2] for option in (found["options"] or "").split(", and ") if option)
    return Wish(found["what"], options, float(found["limit"] or "inf"))


@dataclass
class Notebook:
    """What an episode has shown so far. Products are named by their ids in lower case, as they are clicked."""
    wish: Wish
    texts: list[str] = field(default_factory=list)               # the strings of the page that is open
    prices: dict[str, float] = field(default_factory=dict)       # the lower end of a range
    known: dict[str, str] = field(default_factory=dict)          # product -> all that was read about it
    looked: set[tuple[str, str]] = field(default_factory=set)    # (product, sub-page)
    rejected: set[str] = field(default_factory=set)
    product: str | None = None                                   # the one opened last
    chosen: dict[str, str] = field(default_factory=dict)         # options clicked since then, {name: value}
    bought: str | None = None
    steps: int = 0

    def read(self, action: str | None, observation: str) -> None:
        """Take in the observation that followed `action` (None: the first one)."""
        name, what = parse_action(action or "")
        page, before, self.texts = self.page(), self.texts, observation[1:-1].split("' [SEP] '")
        self.steps += action is not None
        clicked = what if name == "click" and what in {text.lower() for text in before} else None
        if page == "results" and clicked in self.prices:
            self.product, self.chosen = clicked, {}
        elif page == "item" and clicked == "buy now":
            self.bought = self.product
        elif page == "item" and clicked in ("features", "description"):
            self.looked.add((self.product, clicked))
            self.known[self.product] += " " + " ".join(self.texts[2:])
        elif page == "item" and clicked == "< prev":
            self.rejected.add(self.product)
        elif page == "item" and clicked:        # a value belongs to the last option of the wish that is named above it
            named = [text for text in before[:before.index(clicked)] if text in self.wish.options] if clicked in before else []
            self.chosen.update({named[-1]: clicked} if named else {})
        if self.page() == "results":
            rows = self.texts[self.texts.index("Next >") + 1:]
            for asin, title, tag in zip(rows[::3], rows[1::3], rows[2::3]):
                self.prices[asin.lower()] = float(tag.split(" to ")[0].strip("$"))
                self.known.setdefault(asin.lower(), title)

    def page(self) -> str:
        return next((page for mark, page in MARKS.items() if mark in self.texts), "other")

    def missing(self, product: str) -> set[str]:
        """Words of the wish that nothing read about a product has."""
        have, wanted = (set(re.findall(r"\w+", text.lower())) for text in (self.known[product], self.wish.what))
        return wanted - have

    def best(self, products) -> list[str]:
        """Those that cost little enough and were not rejected: those with most words of the wish first, else in their order."""
        return sorted((p for p in products if self.prices[p] <= self.wish.limit and p not in self.rejected),
                      key=lambda p: len(self.missing(p)))


def start(description: str) -> Notebook:
    return Notebook(parse_goal(description))


def slip(book: Notebook, admissible, rng: random.Random) -> tuple[str, str]:
    """A search for some words of the wish, or a click without sense."""
    action = rng.choice(admissible)
    if action.startswith("search"):
        words = book.wish.what.split()
        return "search", f"search[{' '.join(rng.sample(words, rng.randint(1, len(words))))}]"
    return rng.choice(("open it", "go back", "buy", "read features", "more results")), action


def decide(book: Notebook, admissible, rng: random.Random, hints: tuple[str, ...] = (), careless: bool = False) -> tuple[str, str]:
    """(thought, action): what a sensible customer does next. `hints`: products to open first, as a skill may name them.

    A careless one opens the first result whatever it costs, does not read about it, and forgets all options but the first.
    """
    page, wish, product = book.page(), book.wish, book.product
    if page == "search":
        return "search", f"search[{' '.join([wish.what, *(wish.options.values() if rng.random() < 0.5 else ())])}]"
    if page == "results":
        listed = [what for _, what in map(parse_action, admissible) if what in book.prices]
        choice = [p for p in hints if p in listed and p not in book.rejected] or (listed if careless else book.best(listed))
        look_on = ("more results", "click[next >]") if listed else ("search again", "click[back to search]")
        return ("open it", f"click[{choice[0]}]") if choice else look_on
    if page == "other":
        return "go back", "click[< prev]"
    options = {name: f"click[{value}]" for name, value in wish.options.items()}
    unread = [part for part in ("features", "description") if (product, part) not in book.looked]
    if not (careless or product in hints or book.steps >= PATIENCE):
        if not set(options.values()) <= set(admissible) or book.missing(product) and not unread:
            return "not this one", "click[< prev]"
        if book.missing(product):
            return f"read {unread[0]}", f"click[{unread[0]}]"
    for name in list(options)[:1 if careless else None]:
        if book.chosen.get(name) != wish.options[name] and options[name] in admissible:
            return f"choose {name}", options[name]
    return "buy", "click[buy now]"


def hindsight(trajectory: Trajectory, name_places: bool = True) -> tuple[str, str]:
    """(summary, skill) of a finished trajectory: after a success what worked, after a failure what to do instead and to avoid.

    `name_places`: the skill also says which product to open (the paper's "decisive observations"); without, only the workflow.
    """
    book = Notebook(parse_goal(trajectory.task.description))
    book.read(None, trajectory.steps[0].context.observation)
    for step in trajectory.steps:
        book.read(step.action, step.observation_after)
    wish, bought = book.wish, book.bought
    left = " and ".join(value for name, value in wish.options.items() if book.chosen.get(name) != value)
    dear = bought is not None and book.prices[bought] > wish.limit
    # What was right but for a click is to be opened again; after another failure the best of the others.
    targets = [bought] if bought and (trajectory.success or left and not dear) else book.best(p for p in book.known if p != bought)
    target = targets[0] if targets and name_places else "one" + (f" below {wish.limit:.0f} dollars" if wish.limit < float("inf") else "")
    click = f"click {' and '.join(wish.options.values())}, " if wish.options else ""
    skill = f"Search {wish.what}, open {target}, {click}buy it."
    if trajectory.success:
        return f"The {wish.what} was bought in {len(trajectory.steps)} steps.", skill
    if bought is None:
        return "Nothing was bought.", f"{skill} Do not go on without buying."
    avoid = f"Do not buy {bought}." if name_places and bought != target else ""
    if dear:
        return "What was bought cost too much.", f"{skill} {avoid or 'Do not buy what costs more.'}"
    if left:
        return f"It was bought without {left}.", f"{skill} Do not buy without {left}."
    return "What was bought was not what the task asks for.", f"{skill} {avoid or 'Do not buy before its features fit.'}"


def hints(skill: str) -> tuple[str, ...]:
    """The product that a skill says to open."""
    return tuple(re.findall(r", open (b\w+),", skill))


def practice(folder: Path, name: str) -> WebShop:
    """Another made shop, with its own products and goals; of kinds of product that are trained on."""
    make_products(folder, f"practice {name}")
    return WebShop(folder, 1, (GOALS, 0, 0))
