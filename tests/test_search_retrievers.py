"""seed/envs/search_retrievers.py: BM25 by its formula, and servers that fail."""
import json
import math
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_search import VEX, serving

from seed.envs.search_retrievers import Bm25, Server, make_server
from seed.errors import UserError


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
