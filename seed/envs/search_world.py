"""A generated world to search in: a few hundred passages about invented people, towns, regions, novels and schools.

    python -m seed.envs.search_world --out data/my_world --train 160 --valid-seen 200 --valid-unseen 200

For a machine without the public question sets, and for a model that learns on a laptop. Names are drawn at random, so nothing can be known
without searching. A `Relation` holds between two kinds of things ("person was born in town"); a passage states all relations of its
subject. A question follows a chain of one or two of them:

    birth           In which town was Torbel Vangar born?                       one search for what the question names
    author, birth   In which town was the writer of the novel Morsel born?      the bridge, the writer, must be searched for next

The answer of a two-hop question is neither in the question nor in the passage of what the question names: without the bridge there is no
way to it, and there are far more bridges than turns. `valid_seen` asks other questions of training's relations about training's half of
the world. `valid_unseen` asks only questions with a relation that training never asks for (HELD_OUT), about a half of the world that
training never asks about. The passages of both halves are one corpus.

Everything follows from the seed. Files: corpus.jsonl, train.jsonl, valid_seen.jsonl, valid_unseen.jsonl (`search_data.py`).
"""
import argparse
import json
import random
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from seed.errors import UserError, exit_cleanly


@dataclass(frozen=True)
class Relation:
    subject: str     # the kinds of things that it holds between
    object: str
    question: str    # asks for the object; {} is the subject
    phrase: str      # names the object inside a longer question


RELATIONS = {
    "birth": Relation("person", "town", "In which town was {} born?", "the town where {} was born"),
    "death": Relation("person", "town", "In which town did {} die?", "the town where {} died"),
    "teacher": Relation("person", "person", "Who taught {}?", "the teacher of {}"),
    "author": Relation("novel", "person", "Who wrote the novel {}?", "the writer of the novel {}"),
    "founder": Relation("school", "person", "Who founded the school {}?", "the founder of the school {}"),
    "seat": Relation("school", "town", "In which town is the school {}?", "the town of the school {}"),
    "region": Relation("town", "region", "In which region is {}?", "the region of {}"),
    "river": Relation("town", "river", "On which river is {}?", "the river of {}"),
    "capital": Relation("region", "town", "Which town is the capital of {}?", "the capital of {}"),
}
PASSAGES = {  # of a subject named {name}: the objects of all its relations. A river has no passage.
    "person": "{name} was born in {birth}, died in {death} and was taught by {teacher}.",
    "novel": "{name} is a novel by {author}.",
    "school": "{name} is a school in {seat}, founded by {founder}.",
    "town": "{name} is a town in {region} on the river {river}.",
    "region": "{name} is a region with the capital {capital}.",
}
HELD_OUT = ("death", "teacher", "river")    # training never asks for these
CHAINS = [(r,) for r in RELATIONS] + [(r, s) for r in RELATIONS for s in RELATIONS if RELATIONS[r].object == RELATIONS[s].subject]
TYPES = {1: "one_hop", 2: "two_hop"}
MIX = (1, 2, 2, 1, 2)                       # hops of the questions of a split, in turn
# How many things of a kind for each question that is asked of a half, and at least.
SIZES = {"person": (0.3, 8), "novel": (0.15, 4), "school": (0.1, 4), "town": (0.15, 6), "region": (0.05, 3), "river": (0.08, 3)}
# All of three letters, so that other syllables make another name; none ends like an English suffix, which a stemmer would cut.
SYLLABLES = ("bar bel bor can cor dan del dor far fen gar gol han hel jor kan kor lan lom mar mel mor nan nor pel por ran ren rom san "
             "sel sor tan tel tor van vel vor zan zor").split()


@dataclass(frozen=True)
class Asked:
    """A question of the world, with the passages that answer it in order."""
    chain: tuple[str, ...]
    text: str
    answer: str
    passages: tuple[str, ...]     # their subjects


def make_names(number: int, rng: random.Random) -> list[str]:
    """Different invented words, of two syllables while these suffice."""
    length = 2
    while len(SYLLABLES) ** length < 2 * number:
        length += 1
    names = []
    for code in rng.sample(range(len(SYLLABLES) ** length), number):
        parts = []
        for _ in range(length):
            code, digit = divmod(code, len(SYLLABLES))
            parts.append(SYLLABLES[digit])
        names.append("".join(parts).capitalize())
    return names


def make_half(sizes: dict[str, int], names: list[str], rng: random.Random) -> tuple[dict[str, str], dict]:
    """({name: kind}, {(relation, subject): object}) of one half of the world. Takes its names off the end of `names`."""
    things = {kind: [f"{names.pop()} {names.pop()}" if kind == "person" else names.pop() for _ in range(number)]
              for kind, number in sizes.items()}
    facts = {}
    for name, relation in RELATIONS.items():
        for number, subject in enumerate(things[relation.subject]):
            others = [thing for thing in things[relation.object] if thing != subject]
            # Every region has a town, for its capital.
            facts[name, subject] = others[number % len(others)] if name == "region" else rng.choice(others)
    for region in things["region"]:
        facts["capital", region] = rng.choice([town for town in things["town"] if facts["region", town] == region])
    return {thing: kind for kind, found in things.items() for thing in found}, facts


def passage(name: str, kind: str, facts: dict) -> str:
    """What the corpus says about a thing, in wiki-18's form: the title in quotes, then the text."""
    stated = {relation: facts[relation, name] for relation in RELATIONS if RELATIONS[relation].subject == kind}
    return f'"{name}"\n' + PASSAGES[kind].format(name=name, **stated)


def wording(chain: tuple[str, ...], subject: str) -> str:
    """The question of a chain about a subject."""
    for relation in chain[:-1]:
        subject = RELATIONS[relation].phrase.format(subject)
    return RELATIONS[chain[-1]].question.format(subject)


def ask(chain: tuple[str, ...], subject: str, kinds: dict, facts: dict) -> Asked | None:
    """The question with its answer; None where the answer is met without going all the way."""
    met = [subject]
    for relation in chain[:-1]:
        met.append(facts[relation, met[-1]])
    answer = facts[chain[-1], met[-1]]
    too_near = answer in met or (len(chain) > 1 and answer in passage(subject, kinds[subject], facts))
    return None if too_near else Asked(chain, wording(chain, subject), answer, tuple(met))


def deal(chains: list[tuple], kinds: dict, facts: dict, number: int, rng: random.Random) -> list[Asked]:
    """`number` different questions, one and two hops as in MIX, the chains of each length in turn."""
    decks = {1: [], 2: []}
    for chain in chains:
        deck = [ask(chain, name, kinds, facts) for name, kind in kinds.items() if kind == RELATIONS[chain[0]].subject]
        deck = [question for question in deck if question]
        rng.shuffle(deck)
        decks[len(chain)].append(deck)
    dealt = []
    while len(dealt) < number:
        hops = MIX[len(dealt) % len(MIX)]
        decks = {length: [deck for deck in left if deck] for length, left in decks.items()}
        deck = (decks[hops] or decks[3 - hops]).pop(0)
        dealt.append(deck.pop())
        decks[len(dealt[-1].chain)].append(deck)
    rng.shuffle(dealt)
    return dealt


def make_world(numbers: dict[str, int], seed: int) -> tuple[dict[str, str], dict[str, list[Asked]]]:
    """({name: passage} in the order of the corpus, {split: questions})."""
    rng = random.Random(f"search world {seed}")
    halves = (("train", "valid_seen"), ("valid_unseen",))
    sizes = [{kind: max(least, ceil(share * sum(numbers[split] for split in half))) for kind, (share, least) in SIZES.items()}
             for half in halves]
    words = sum(number * (2 if kind == "person" else 1) for half in sizes for kind, number in half.items())
    names, passages, splits = make_names(words, rng), [], {}
    for half, size in zip(halves, sizes):
        kinds, facts = make_half(size, names, rng)
        held_out = half == ("valid_unseen",)
        chains = [chain for chain in CHAINS if held_out == any(relation in HELD_OUT for relation in chain)]
        dealt = deal(chains, kinds, facts, sum(numbers[split] for split in half), rng)
        for split in half:
            splits[split], dealt = dealt[:numbers[split]], dealt[numbers[split]:]
        passages += [(name, passage(name, kind, facts)) for name, kind in kinds.items() if kind in PASSAGES]
    rng.shuffle(passages)
    return dict(passages), splits


def write_world(root: Path, numbers: dict[str, int], seed: int) -> None:
    """Write a world's corpus and question files into a folder. What an interrupted run has left there is replaced."""
    passages, splits = make_world(numbers, seed)
    place = {name: str(number) for number, name in enumerate(passages)}
    root.mkdir(parents=True, exist_ok=True)
    rows = {"corpus": [{"id": place[name], "contents": text} for name, text in passages.items()]}
    for split, questions in splits.items():
        rows[split] = [{"id": f"{'-'.join(q.chain)}-{q.passages[0].replace(' ', '_')}", "question": q.text, "golden_answers": [q.answer],
                        "data_source": TYPES[len(q.chain)], "passages": [place[name] for name in q.passages]} for q in questions]
    for name, lines in rows.items():
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8", newline="\n")


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    for split, number in zip(("train", "valid_seen", "valid_unseen"), (160, 200, 200)):
        parser.add_argument(f"--{split.replace('_', '-')}", type=int, default=number)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.out.exists():
        raise UserError(f"--out {args.out} is there already: choose a new folder")
    write_world(args.out, {split: getattr(args, split) for split in ("train", "valid_seen", "valid_unseen")}, args.seed)
    print(f"made {args.out}")


if __name__ == "__main__":
    main()
