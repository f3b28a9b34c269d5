"""seed/envs/webshop_search.py against Lucene's terms, ranking and scores, and against a score by hand."""
import random
from math import log

import pytest
from conftest import spec_cases, spec_params

from seed.envs.webshop_search import Index, terms


@pytest.mark.parametrize("case", spec_params("cases_bm25.json", "queries"))
def test_worked_searches(case):
    index = Index({text["id"]: text["contents"] for text in spec_cases("cases_bm25.json")["documents"]})
    hits = index.search(case["query"])
    assert terms(case["query"]) == case["query_terms"]
    assert [name for name, _ in hits] == [name for name, _ in case["hits"]]
    assert [score for _, score in hits] == pytest.approx([score for _, score in case["hits"]], abs=1.5e-4)


@pytest.mark.parametrize("case", spec_params("cases_bm25.json", "analyzer"))
def test_worked_terms(case):
    assert terms(case["text"]) == case["terms"]


def test_equal_scores_are_ordered_by_id_and_hits_are_cut_at_50():
    names = [f"B{n:03}" for n in range(80)]
    shuffled = random.Random(3).sample(names, len(names))
    assert [name for name, _ in Index({name: "red mug" for name in shuffled}).search("mug")] == names[:50]
    assert Index({}).search("mug") == [] and Index({"a": ""}).search("mug") == []


def test_the_score_by_hand():
    """Three texts of 2, 2 and 57 terms; the last counts as 56, the mean stays (2 + 2 + 57) / 3."""
    index = Index({"a": "mug red", "b": "pan red", "c": "mug " * 57})
    part = lambda length: 0.9 * (0.6 + 0.4 * length / (61 / 3))
    idf = log(1 + 1.5 / 2.5)
    assert index.search("mug mugs") == [("c", round(2 * idf * 57 / (57 + part(56)), 4)), ("a", round(2 * idf / (1 + part(2)), 4))]


@pytest.mark.parametrize("text, expected", [
    ("日本語", ["日", "本", "語"]), ("don\u2019t women\u2019s", ["don\u2019t", "women"]), ("it is THE Shoes'", ["shoe"]),
    ("a.b 1.2.3 x² ¼ __ a_b", ["a.b", "1.2.3", "x", "a_b"]), ("", [])])
def test_terms(text, expected):
    assert terms(text) == expected
