"""seed/envs/search_world.py: splits that share nothing, questions whose answer two searches find and one does not."""
import random
from collections import Counter

import pytest
from test_search_retrievers import ids

from seed.envs.search_data import find_corpus, read_corpus, read_questions, read_rows
from seed.envs.search_retrievers import Bm25
from seed.envs.search_world import CHAINS, HELD_OUT, make_names, make_world, wording, write_world

SIZES = {"train": 160, "valid_seen": 200, "valid_unseen": 200}


@pytest.fixture(scope="module")
def made():
    return make_world(SIZES, 0)


def test_no_question_is_in_two_splits_and_unseen_means_unseen(made):
    passages, splits = made
    assert {split: len(found) for split, found in splits.items()} == SIZES
    texts = [question.text for found in splits.values() for question in found]
    assert len(set(texts)) == len(texts) and 300 <= len(passages) <= 600
    trained = splits["train"] + splits["valid_seen"]
    names = lambda questions: {name for q in questions for name in (*q.passages, q.answer)}
    assert not names(trained) & names(splits["valid_unseen"])
    assert not any(set(q.chain) & set(HELD_OUT) for q in trained)
    assert all(set(q.chain) & set(HELD_OUT) for q in splits["valid_unseen"])
    asked = {q.chain for q in splits["valid_unseen"]} | {q.chain for q in trained}
    assert asked == set(CHAINS) - {("capital", "region")}      # that one asks in a circle


def test_the_answer_stands_where_the_passages_lead(made):
    passages, splits = made
    for found in splits.values():
        assert Counter(len(q.chain) for q in found)[2] >= len(found) / 2
        for q in found:
            assert q.text == wording(q.chain, q.passages[0]) and len(q.chain) == len(q.passages)
            assert q.answer in passages[q.passages[-1]] and q.answer not in q.text
            if len(q.chain) == 2:
                bridge = q.passages[1]
                assert bridge in passages[q.passages[0]] and bridge not in q.text and q.answer not in passages[q.passages[0]]


@pytest.mark.parametrize("sizes, seed", [(SIZES, 0), ({"train": 1000, "valid_seen": 100, "valid_unseen": 100}, 1)])
def test_what_searches_can_and_cannot_find(sizes, seed):
    """One hop: by the question itself. Two hops: hardly ever by the question, always by one more search for the bridge."""
    passages, splits = make_world(sizes, seed)
    bm25 = Bm25([{"id": name, "contents": text} for name, text in passages.items()])
    for found in splits.values():
        single = [q for q in found if len(q.chain) == 1]
        double = [q for q in found if len(q.chain) == 2]
        assert all(q.passages[0] in ids(bm25(q.text, 3)) for q in single)
        assert all(name in ids(bm25(name, 3)) for q in double for name in q.passages)
        assert sum(q.passages[1] in ids(bm25(q.text, 3)) for q in double) <= 0.1 * len(double)
        most = Counter(q.answer for q in found).most_common(1)[0][1]
        assert most <= 0.1 * len(found)        # always the same guess hardly pays


def test_small_and_large_worlds():
    assert {s: len(q) for s, q in make_world({"train": 1, "valid_seen": 1, "valid_unseen": 1}, 5)[1].items()} == {s: 1 for s in SIZES}
    for number, length in ((800, 6), (801, 9)):
        names = make_names(number, random.Random(0))
        assert len(set(names)) == number and {len(name) for name in names} == {length}


def test_a_written_world_reads_back_and_depends_on_the_seed(tmp_path, made):
    passages, splits = made
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_world(tmp_path / name, SIZES, seed)
    text = lambda name: [path.read_bytes() for path in sorted((tmp_path / name).iterdir())]
    assert text("a") == text("b") != text("c") and len(text("a")) == 4
    assert [passage["contents"] for passage in read_corpus(find_corpus(tmp_path / "a"))] == list(passages.values())
    questions = read_questions(tmp_path / "a")
    for split, found in splits.items():
        assert sorted((q.text, q.answers) for q in questions[split]) == sorted((q.text, (q.answer,)) for q in found)
        assert [q.id for q in questions[split]] == sorted({q.id for q in questions[split]})
        assert {q.source for q in questions[split]} == {"one_hop", "two_hop"}
    rows = {row["id"]: row for _, row in read_rows(tmp_path / "a" / "train.jsonl")}
    contents = read_corpus(find_corpus(tmp_path / "a"))
    assert all(row["golden_answers"][0] in contents[int(row["passages"][-1])]["contents"] for row in rows.values())
