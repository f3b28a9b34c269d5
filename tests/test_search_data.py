"""seed/envs/search_data.py, search_retrievers.py, search_world.py: public files, BM25, servers that fail, the generated world."""
import gzip
import json
import math
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_search import VEX, serving

from seed.envs.search_data import find_corpus, read_corpus, read_question, read_questions, read_rows
from seed.envs.search_retrievers import Bm25, Server, make_server
from seed.envs.search_world import CHAINS, HELD_OUT, make_names, make_world, wording, write_world
from seed.errors import UserError

SIZES = {"train": 160, "valid_seen": 200, "valid_unseen": 200}


def put(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


# --- question files

def flashrag(split, *names):
    return [{"id": f"{split}_{i}", "question": f"Who is {name}", "golden_answers": [name]} for i, name in enumerate(names)]


def search_r1(source, split, index, text="Who is he?"):
    return {"data_source": source, "prompt": [{"role": "user", "content": f"Answer the given question. Question: {text}\n"}],
            "ability": "fact-reasoning", "reward_model": {"style": "rule", "ground_truth": {"target": ["Bob", "Rob"]}},
            "extra_info": {"split": split, "index": index}}


def test_sources_without_training_questions_are_unseen(tmp_path):
    put(tmp_path / "nq" / "train.jsonl", flashrag("train", "a", "b"))
    put(tmp_path / "nq" / "dev.jsonl", flashrag("dev", "left out: there is a test file"))
    put(tmp_path / "nq" / "test.jsonl", flashrag("test", "c"))
    put(tmp_path / "hotpotqa" / "train.jsonl", flashrag("train", "d"))
    put(tmp_path / "hotpotqa" / "dev.jsonl", flashrag("dev", "e"))
    put(tmp_path / "musique" / "dev.jsonl", flashrag("dev", "f"))
    put(tmp_path / "bamboogle" / "test.jsonl", flashrag("test", "g", "h"))
    (tmp_path / "README.md").write_text("not a question file")
    splits = read_questions(tmp_path)
    assert {split: [q.id for q in found] for split, found in splits.items()} == {
        "train": ["hotpotqa/train/train_0", "nq/train/train_0", "nq/train/train_1"],
        "valid_seen": ["hotpotqa/dev/dev_0", "nq/test/test_0"],
        "valid_unseen": ["bamboogle/test/test_0", "bamboogle/test/test_1", "musique/dev/dev_0"]}
    assert splits["valid_unseen"][2].text == "Who is f?" and splits["valid_unseen"][2].source == "musique"


@pytest.mark.parametrize("row, text, answers, source", [
    (search_r1("nq", "train", 7), "Who is he?", ("Bob", "Rob"), "nq"),
    ({**search_r1("nq", "train", 7), "question": "who is she"}, "who is she?", ("Bob", "Rob"), "nq"),
    ({"data_source": "triviaqa", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
      "env_kwargs": {"ground_truth": {"target": ["x"]}, "question": " q ", "data_source": "triviaqa"}}, "q?", ("x",), "triviaqa"),
    ({"question": "q?", "golden_answers": "bare"}, "q?", ("bare",), "folder"),
    ({"question": "q?", "answer": ["a", 1984]}, "q?", ("a", "1984"), "folder"),
    ({"question": "q?", "golden_answers": [""]}, "q?", ("",), "folder"),
])
def test_rows_of_every_form(row, text, answers, source):
    question = read_question("f, line 1", row, "folder", "train", 7)
    assert (question.text, question.answers, question.source, question.id) == (text, answers, source, f"{source}/train/7")


@pytest.mark.parametrize("row", [{}, {"question": "q?"}, {"golden_answers": ["a"]}, {"question": " ", "golden_answers": ["a"]},
                                 {"question": "q?", "golden_answers": []}, {"question": 3, "golden_answers": ["a"]},
                                 {"prompt": "q", "answer": "a"}, {"prompt": [], "answer": "a"}, {"question": "q?", "reward_model": "a"}])
def test_rows_without_question_or_answer_are_named(row):
    with pytest.raises(UserError, match="f, line 1: no question or no right answers; expected"):
        read_question("f, line 1", row, "folder", "train", 7)


def test_parquet_as_search_r1_writes_it(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow, which requirements.txt does not have: pip install pyarrow")
    import pyarrow.parquet
    rows = [search_r1("nq", "train", 0, "Who is a?"), search_r1("hotpotqa", "train", 0, "Who is b?")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    rows = [search_r1(source, "test", i) for i, source in enumerate(("nq", "popqa", "nq"))]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test-00000-of-00001.parquet", row_group_size=2)
    splits = read_questions(tmp_path)
    assert {split: [q.id for q in found] for split, found in splits.items()} == {
        "train": ["hotpotqa/train/1", "nq/train/0"], "valid_seen": ["nq/test/0", "nq/test/2"], "valid_unseen": ["popqa/test/1"]}
    assert splits["train"][1].text == "Who is a?" and splits["train"][1].answers == ("Bob", "Rob")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match="train.parquet is no whole parquet file"):
        read_questions(tmp_path)


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match="`pip install pyarrow`"):
        list(read_rows(tmp_path / "train.parquet"))


def test_folders_that_cannot_be_played(tmp_path):
    with pytest.raises(UserError, match="has no training questions: expected question files like nq/train.jsonl"):
        read_questions(tmp_path / "nowhere")
    put(tmp_path / "nq" / "train.jsonl", flashrag("train", "a") * 2)
    with pytest.raises(UserError, match="the id nq/train/train_0"):
        read_questions(tmp_path)
    (tmp_path / "nq" / "train.jsonl").write_text('{"id": 1, "question"')
    with pytest.raises(UserError, match=r"train.jsonl, line 1: expected one JSON object"):
        read_questions(tmp_path)
    (tmp_path / "nq" / "train.jsonl").write_text('\n[1, 2]\n')
    with pytest.raises(UserError, match=r"train.jsonl, line 2: expected one JSON object"):
        read_questions(tmp_path)


def test_corpora(tmp_path):
    with pytest.raises(UserError, match="no corpus files.*SEARCH_URL"):
        find_corpus(tmp_path)
    with gzip.open(tmp_path / "wiki-18.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(VEX) + "\n\n" + json.dumps({"contents": "\u00e9\u2028 one line"}, ensure_ascii=False) + "\n")
    assert read_corpus(find_corpus(tmp_path)) == [VEX, {"id": "1", "contents": "\u00e9\u2028 one line"}]
    put(tmp_path / "corpus.jsonl", [{"id": "0", "text": "x"}])
    with pytest.raises(UserError, match="has 2 corpus files"):
        find_corpus(tmp_path)
    with pytest.raises(UserError, match="corpus.jsonl, line 1: no contents"):
        read_corpus(tmp_path / "corpus.jsonl")
    put(tmp_path / "corpus.jsonl", [])
    with pytest.raises(UserError, match="is empty"):
        read_corpus(tmp_path / "corpus.jsonl")
    (tmp_path / "wiki-18.jsonl.gz").write_bytes((tmp_path / "wiki-18.jsonl.gz").read_bytes()[:30])
    with pytest.raises(UserError, match="wiki-18.jsonl.gz, line"):
        read_corpus(tmp_path / "wiki-18.jsonl.gz")
    with pytest.raises(UserError, match="there is no corpus"):
        read_corpus(tmp_path / "nothing.jsonl")


# --- BM25

def corpus(*texts):
    return [{"id": str(i), "contents": text} for i, text in enumerate(texts)]


def ids(hits):
    return [hit["document"]["id"] for hit in hits]


def test_bm25_is_the_formula():
    bm25 = Bm25(corpus("cat cat dog", "cat bird bird bird fish", "fish"))
    idf = lambda df: math.log(1 + (3 - df + 0.5) / (df + 0.5))
    part = lambda tf, length: tf / (tf + 0.9 * (1 - 0.4 + 0.4 * length / 3))   # the mean length is 3
    hits = bm25("cat fish cat", 3)           # a term that is asked twice counts twice
    expected = {"0": 2 * idf(2) * part(2, 3), "1": 2 * idf(2) * part(1, 5) + idf(2) * part(1, 5), "2": idf(2) * part(1, 1)}
    assert {hit["document"]["id"]: hit["score"] for hit in hits} == pytest.approx(expected, abs=1e-4)
    assert ids(hits) == ["1", "0", "2"]


def test_bm25_edges():
    bm25 = Bm25(corpus("the cat", "", "the dog", "a cat", "is it", "cats running", "x"))
    assert ids(bm25("cat", 2)) == ["0", "3"] and ids(bm25("cat", 50)) == ["0", "3", "5"]    # equal scores: order of the corpus; never 0
    assert ids(bm25("RUN?", 3)) == ["5"] and ids(bm25("x", 3)) == ["6"]                   # stems, case, words of one letter
    assert bm25("", 3) == bm25("the", 3) == bm25("zebra", 3) == bm25("?!", 3) == bm25("cat", 0) == []
    assert Bm25(corpus("", "the"))("the cat", 3) == []


# --- servers

@pytest.fixture
def flaky():
    """A server whose answers are listed: (status, body) each; None never answers."""
    answers, seen = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            answer = answers.pop(0)
            if answer is None:
                return time.sleep(0.5)
            self.send_response(answer[0])
            self.end_headers()
            self.wfile.write(answer[1].encode())

        def log_message(self, *args):
            pass
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers, seen
    server.shutdown()
    server.server_close()
    thread.join()


GOOD = json.dumps({"result": [[{"document": VEX, "score": 2}]]})


def test_the_request_is_one_that_both_kinds_of_server_read(flaky):
    url, answers, seen = flaky
    answers += [(200, GOOD)]
    assert Server(url)("vex", 3) == [{"document": VEX, "score": 2.0}]
    assert seen == [("/retrieve", {"query": "vex", "queries": ["vex"], "topk": 3, "return_scores": True})]


def test_failures_that_pass_are_tried_again(flaky):
    url, answers, seen = flaky
    answers += [(503, "busy"), None, (200, GOOD)]
    assert Server(url, timeout=0.2, delay=0)("vex", 3) == [{"document": VEX, "score": 2.0}] and len(seen) == 3


def test_waits_grow(flaky, monkeypatch):
    url, answers, seen = flaky
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    answers += [(500, "no")] * 10
    with pytest.raises(UserError, match=r"does not answer \(HTTP 500 no; attempts: 10\): start it, or set SEARCH_URL"):
        Server(url)("vex", 3)
    assert waits == [1, 2, 3, 4, 5, 6, 7, 8, 9] and len(seen) == 10


def test_what_will_not_pass_is_not_tried_again(flaky):
    url, answers, seen = flaky
    answers += [(422, "no\nfield queries")]
    with pytest.raises(UserError, match="HTTP 422 no field queries; attempts: 1"):
        Server(url)("vex", 3)
    for answer in ("<html>", "[]", "{}", '{"result": 3}', '{"result": [[{"document": {"id": 1}}]]}', '{"result": [["x"]]}',
                   '{"result": [[{"document": null}]]}', '{"result": [[{"id": "1", "contents": null}]]}'):
        answers.append((200, answer))
        with pytest.raises(UserError, match="is no retrieval result"):
            Server(url)("vex", 3)
    assert len(seen) == 9


@pytest.mark.parametrize("answer, hits", [
    ({"result": [[VEX]]}, [{"document": VEX, "score": 0.0}]),                     # no scores: bare documents
    ({"result": [[{"document": {**VEX, "id": 0, "title": "Orlan Vex", "text": "..."}, "score": 1}]]}, [{"document": VEX, "score": 1.0}]),
    ({"result": [[]]}, []), ({"result": []}, [])])
def test_answers_of_other_servers(flaky, answer, hits):
    url, answers, _ = flaky
    answers.append((200, json.dumps(answer)))
    assert Server(url)("vex", 3) == hits


def test_a_server_that_is_down():
    with serving(lambda query, topk: []) as url:
        assert Server(url)("vex", 3) == []
    with pytest.raises(UserError, match=f"the search server {url} does not answer .*refused.*attempts: 2.*--resume"):
        Server(url, delay=0)("vex", 3, tries=2)
    for bad in ("localhost:8000", "ftp://host/x", "http://"):
        with pytest.raises(UserError, match="expected the address of a search server"):
            Server(bad)
    assert Server("http://host:1/other").url == "http://host:1/other"


def test_our_server_answers_both_forms_and_names_bad_ones():
    def post(url, body):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
            return json.load(answer)
    with serving(Bm25(corpus("cat", "dog cat", "dog"))) as url:
        both = post(url, {"queries": ["cat", "zebra", "dog"], "topk": 1, "return_scores": True})["result"]
        assert [ids(hits) for hits in both] == [["0"], [], ["2"]] and both[0][0]["score"] > 0
        assert [ids(hits) for hits in post(url, {"query": "cat", "return_scores": True})["result"]] == [["0", "1"]]
        assert post(url, {"queries": ["cat"], "topk": 1, "return_scores": False})["result"] == [[{"id": "0", "contents": "cat"}]]
        for address, body, code in [(url, {}, 422), (url, b"{", 422), (url, {"queries": "cat"}, 422), (url, {"query": 3}, 422),
                                    (url, [], 422), (url + "/x", {"query": "cat"}, 404)]:
            with pytest.raises(urllib.error.HTTPError) as error:
                post(address, body)
            assert error.value.code == code and "expected" in json.load(error.value)["detail"]
        with pytest.raises(UserError, match="cannot serve at 127.0.0.1"):
            make_server(None, "127.0.0.1", int(url.split(":")[2].split("/")[0]))


# --- the generated world

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
