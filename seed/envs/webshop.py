"""WebShop: an instruction, a shop of 1,000 products, one purchase. Played as text.

In the paper: the second benchmark (Table 1: score and success). Pages, commands, search order and reward are those of WebShop's text
mode as the paper's harness shows it. There are two kinds of action:

    search[words]       on every page, though it is offered on the first only
    click[what]         what the page shows: a button, a product's id, a value of an option; clicking a value leaves the text as it is

Buying ends the episode. Its reward there, between 0 and 1, is `Turn.score` (`webshop_reward.py`); `won` means a score of exactly 1, and
r_t is 10 for that and 0 otherwise. Any other action does nothing, is well formed all the same, and uses up a step.

How it differs from the original:
1. After Buy Now the harness shows the first page of another, random task. Here the last observation says what was bought.
2. Splits without leaks, and a `valid_unseen` of our own (kinds of products never trained on): see `webshop_products.py`, which reads
   downloaded files from data/webshop or where --data points. Without them the made-up products of `webshop_made.py` are played.
3. Search without Java, nouns without spaCy: see `webshop_search.py`, `webshop_products.py`.
4. The harness leaves out all history where the prompt has more than 13,000 characters; the rollout leaves out the oldest steps first,
   where it has more than --max-prompt-tokens.
"""
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from seed.envs.base import CACHE, GameError, Reply, Turn, Words, new_folder, read_action, slots_for
from seed.envs.webshop_products import HUMAN, PRODUCTS, SPLITS, Goal, Product, read_goals, read_products, split_goals
from seed.envs.webshop_search import Index
from seed.errors import UserError
from seed.trajectory import Task

REWARD_WON = 10.0
A_PAGE = 10                                     # products
SUB_PAGES = ("Description", "Features", "Reviews")
BACK, BEFORE, AFTER, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
MADE_VERSION, MADE_SEED = 1, 0                  # raise the version when the generator changes
ACTION = re.compile(r"(.+)\[(.+)\]")            # greedy; up to the last bracket of the first line


def parse_action(text: str) -> tuple[str, str | None]:
    """(name, what is in the brackets, in lower case); (text, None) where there are none. What follows the last bracket is ignored.

    >>> parse_action("click[Buy Now] please"), parse_action("search[]")
    (('click', 'buy now'), ('search[]', None))
    """
    match = ACTION.match(text)
    return (match[1], match[2].lower()) if match else (text, None)


def read(text: str, admissible: tuple[str, ...]) -> Reply:
    """The reply's action, which does something if it is a search, or a click on what is offered."""
    reply = read_action(text, admissible, fallback=20)
    name, argument = parse_action(reply.action)
    offered = name == "click" and f"click[{argument}]" in admissible
    return replace(reply, admissible=offered or name == "search" and argument is not None)


WORDS = Words(
    head="You are an agent who shops in WebShop, an online store, to buy what a customer asks for.\nYour task is to: ",
    offer="\nYour admissible actions are: [",
    instruction=("]\nFirst reason step by step about the page and the task, inside <think> </think> tags. Then choose one admissible "
                 "action and give it inside <action> </action> tags."),
    analysis="An agent has finished an episode in an online store.",
    read=read)


@dataclass(frozen=True)
class Visit:
    """Where a customer is: `page` is search, results, item, or one of SUB_PAGES in lower case."""
    goal: Goal
    page: str = "search"
    hits: tuple[Product, ...] = ()
    number: int = 1                             # of the page of results
    product: Product | None = None
    chosen: dict[str, str] = field(default_factory=dict)

    def listed(self) -> tuple[Product, ...]:
        return self.hits[A_PAGE * (self.number - 1):A_PAGE * self.number]


def page_texts(visit: Visit) -> list[str]:
    """The page's visible strings below the task, from top to bottom."""
    product = visit.product
    if visit.page == "search":
        return ["Search"]
    if visit.page == "results":
        texts = [f"Page {visit.number} (Total results: {len(visit.hits)})", *[BEFORE] * (visit.number > 1), AFTER]
        texts += [text for shown in visit.listed() for text in (shown.asin, shown.name, shown.price_tag)]
    elif visit.page == "item":
        texts = [BEFORE, *(text for name, values in product.options.items() for text in (name, *values)),
                 product.name, f"Price: {product.price_tag}", "Rating: N.A.", *SUB_PAGES, BUY]
    else:
        texts = [BEFORE, *{"description": (product.description,), "features": product.bullets, "reviews": ()}[visit.page]]
    return [text.strip() for text in (BACK, *texts) if text]


def clickables(visit: Visit) -> list[str]:
    """What `click[...]` accepts: buttons, then products, then values of options; each once."""
    if visit.page == "search":
        return ["search"]
    if visit.page == "results":
        buttons = [BACK, *[BEFORE] * (visit.number > 1), AFTER, *(product.asin for product in visit.listed())]
    else:
        buttons = [BACK, BEFORE, *([*SUB_PAGES, BUY] if visit.page == "item" else [])]
    values = [value for values in visit.product.options.values() for value in values] if visit.page == "item" else []
    return list(dict.fromkeys([button.lower() for button in buttons] + values))


def click(visit: Visit, what: str) -> Visit:
    """The visit after a click on something that the page offers, other than Buy Now."""
    if visit.page == "search":                  # its button does nothing: a search needs words
        return visit
    if what == BACK.lower():
        return Visit(visit.goal)
    if visit.page == "results":
        if what in (BEFORE.lower(), AFTER.lower()):
            return replace(visit, number=visit.number + (1 if what == AFTER.lower() else -1))
        return replace(visit, page="item", product=next(shown for shown in visit.listed() if shown.asin.lower() == what))
    if what == BEFORE.lower():                  # the chosen options are kept on the item's own pages only
        return replace(visit, page="results", chosen={}) if visit.page == "item" else replace(visit, page="item")
    if what.title() in SUB_PAGES:
        return replace(visit, page=what)
    name = [name for name, values in visit.product.options.items() if what in values][-1]  # a value of two options: of the last
    return replace(visit, chosen={**visit.chosen, name: what})


def search_text(product: Product) -> str:
    """What the engine searches of a product."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join([product.name, product.description, *(product.bullets[:1] or [""]), options]).lower()


def open_env(config) -> "WebShop":
    """The shop that the configuration asks for, its products made first where there are none; says in one line which they are."""
    from seed.envs.webshop_made import make_products
    slots = slots_for(config)
    path = Path(config.data) if config.data not in ("auto", "made") else CACHE / "webshop"
    if config.data not in ("auto", "made") or config.data == "auto" and (path / PRODUCTS).exists():
        human = path.name == HUMAN              # this file stands for the folder, and for its goals
        env = WebShop(path.resolve(), slots) if not human else WebShop(path.resolve().parent, slots, human=True)
        print(f"products: {len(env.products)} in {env.root}, {'human' if human else 'synthetic'} instructions", file=sys.stderr)
        return env
    root = CACHE / f"webshop-v{MADE_VERSION}"
    made = "made earlier, " if root.is_dir() else ""
    if not made:
        with new_folder(root) as unfinished:
            make_products(unfinished, MADE_SEED)
    print(f"products: made-up ones, {made}in {root} (no downloaded WebShop data is used)", file=sys.stderr)
    return WebShop(root, slots, (config.train_games, config.seen_games, config.unseen_games))


class WebShop:
    name = "webshop"

    def __init__(self, root: Path, slots: int, numbers: tuple[int, int, int] | None = None, human: bool = False):
        """root: the folder with the product files. slots: how many episodes at once. numbers: goals of each split (None: all)."""
        self.root = Path(root)
        self.slots = slots
        self.products = {product.asin: product for product in read_products(self.root)}
        self.index = Index({asin: search_text(product) for asin, product in self.products.items()})
        self.goals = split_goals(read_goals(self.root, list(self.products.values()), human), numbers)
        self.by_id = {goal.id: goal for goals in self.goals.values() for goal in goals}
        self.visits = [None] * slots

    def splits(self) -> list[str]:
        return [split for split in SPLITS if self.goals[split]]

    def tasks(self, split: str) -> list[Task]:
        if not self.goals.get(split):
            raise UserError(f"no split {split} in {self.root}, which has: {', '.join(self.splits())}")
        return [Task(self.name, goal.id, goal.product.category) for goal in self.goals[split]]

    def reset(self, slot: int, task: Task) -> Turn:
        if task.id not in self.by_id:
            raise GameError(f"{task.id}: no goal of {self.root} has this id")
        self.visits[slot] = Visit(self.by_id[task.id])
        return replace(self._turn(slot), description=self.by_id[task.id].text)

    def step(self, slot: int, action: str) -> Turn:
        visit = self.visits[slot]
        if visit is None:
            raise GameError("the slot has no open episode: it has ended, or was never reset")
        name, argument = parse_action(action)
        if name == "search" and argument:
            hits = tuple(self.products[asin] for asin, _ in self.index.search(argument))
            self.visits[slot] = Visit(visit.goal, "results", hits)
        elif name == "click" and argument in clickables(visit):
            if argument == BUY.lower():
                return self._buy(slot)
            self.visits[slot] = click(visit, argument)
        return self._turn(slot)

    def _buy(self, slot: int) -> Turn:
        from seed.envs.webshop_reward import score
        visit, self.visits[slot] = self.visits[slot], None
        reward = score(visit.product, visit.chosen, visit.goal)["reward"]
        chosen = ", ".join(f"{name}: {value}" for name, value in sorted(visit.chosen.items()))
        bought = f"Bought {visit.product.asin} ({chosen or 'no option chosen'}) for {visit.product.price_tag}."
        return Turn(bought, (), REWARD_WON * (reward == 1.0), done=True, won=reward == 1.0, score=reward)

    def _turn(self, slot: int) -> Turn:
        """The page as it is shown: each of its strings in quotes."""
        visit = self.visits[slot]
        offered = [f"click[{what}]" for what in clickables(visit)]
        return Turn(" [SEP] ".join(f"'{text}'" for text in page_texts(visit)),
                    tuple(["search[<your query>]"] * (visit.page == "search") + offered), score=0.0)  # nothing is bought yet
