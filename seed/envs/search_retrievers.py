"""Search engines: BM25 in this process, or a server that speaks the Search-R1 retrieval API; and such a server.

In the paper: the `search` tool. A search engine here is a function (query, topk) -> hits, best first, where a hit is what the API
calls one: {"document": {"id": str, "contents": str}, "score": float}.

BM25, of the query's terms t in a passage of length L (Lucene's form, k1 = 0.9, b = 0.4):

    score = sum_t  ln(1 + (N - df_t + 0.5) / (df_t + 0.5)) * tf_t / (tf_t + k1 (1 - b + b L / mean L))

The API: POST {"queries": [q1, q2], "topk": 3, "return_scores": true}, or "query": q as verl-agent sends it, to /retrieve; the answer is
{"result": [[hit, hit, hit], [...]]}, one list a query, and with "return_scores": false bare documents instead of hits.

How it differs from the original:
1. The paper's retriever is dense (e5-base-v2, 60 GB of index). BM25 is the default here, and the server of the dense one can be used.
2. A server that does not answer in TRIES attempts ends the run with a line that says so. The original shows the agent an error text, and
   the policy learns from the failed episodes.
3. Search-R1's server crashes on "return_scores": false; ours answers it.
"""
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from seed.envs.webshop_search import K1, B, terms
from seed.errors import UserError

TIMEOUT = 60.0     # seconds for one attempt
TRIES = 10         # attempts; after the n-th failed one n * DELAY seconds pass
DELAY = 1.0


class Bm25:
    """BM25 over passages held in memory, their terms as Lucene's analyzer makes them (`webshop_search.terms`).

    A passage of 100 words takes about 5 KB and a quarter of a millisecond to index: a million are 5 GB and 4 minutes. For all of wiki-18 (21
    million) use a server.
    """

    def __init__(self, passages: list[dict]):
        """passages: [{"id", "contents"}]."""
        import bm25s
        self.passages, self.vocabulary = passages, {}
        # Numbers in order of first occurrence: bm25s' own would follow the order of a set.
        number = lambda term: self.vocabulary.setdefault(term, len(self.vocabulary))
        rows = [[number(term) for term in terms(passage["contents"])] for passage in passages]
        self.index = bm25s.BM25(method="lucene", k1=K1, b=B)
        if self.vocabulary:
            self.index.index((rows, dict(self.vocabulary)), show_progress=False)

    def __call__(self, query: str, topk: int) -> list[dict]:
        """The best passages that share a term with the query; those with equal scores in the order of the corpus."""
        import numpy as np
        known = [self.vocabulary[term] for term in terms(query) if term in self.vocabulary]
        if not known or topk < 1:
            return []
        scores = self.index.get_scores(known)
        worst = np.partition(scores, -min(topk, len(scores)))[-min(topk, len(scores))]
        near = np.flatnonzero((scores >= worst) & (scores > 0))   # in corpus order, and the sort below keeps it
        best = near[np.argsort(-scores[near], kind="stable")][:topk]
        return [{"document": self.passages[i], "score": round(float(scores[i]), 4)} for i in best]


class Server:
    """A search engine behind a URL. Sends what both kinds of server read."""

    def __init__(self, url: str, timeout: float = TIMEOUT, delay: float = DELAY):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(f"SEARCH_URL is {url}: expected the address of a search server, like http://127.0.0.1:8000/retrieve")
        self.url = url if parts.path.strip("/") else f"{url.rstrip('/')}/retrieve"
        self.timeout, self.delay = timeout, delay
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # such servers stand nearby, not behind a proxy

    def __call__(self, query: str, topk: int, tries: int = TRIES) -> list[dict]:
        body = json.dumps({"query": query, "queries": [query], "topk": topk, "return_scores": True}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        for attempt in range(1, tries + 1):
            try:
                with self.opener.open(request, timeout=self.timeout) as response:
                    return self._hits(response.read())
            except urllib.error.HTTPError as error:
                problem = " ".join(f"HTTP {error.code} {error.read(200).decode(errors='replace')}".split())
                if error.code < 500:
                    break
            except (OSError, http.client.HTTPException) as error:  # refused, timed out, cut off
                problem = str(getattr(error, "reason", "") or error or type(error).__name__)
            if attempt < tries:
                time.sleep(attempt * self.delay)
        raise UserError(f"the search server {self.url} does not answer ({problem}; attempts: {attempt}): start it, or set SEARCH_URL to "
                        f"one that runs (`python -m seed.envs.search --serve --corpus FILE` is one); a run goes on with --resume")

    def _hits(self, answer: bytes) -> list[dict]:
        try:
            result = json.loads(answer)["result"]
            hits = []
            for hit in result[0] if result else []:
                document, score = (hit["document"], float(hit.get("score", 0))) if "document" in hit else (hit, 0.0)
                if not isinstance(document["contents"], str):
                    raise TypeError("contents")
                hits.append({"document": {"id": str(document.get("id", "")), "contents": document["contents"]}, "score": score})
            return hits
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"the search server {self.url} answered what is no retrieval result ({answer[:80]!r}): expected "
                            f"{{\"result\": [[{{\"document\": {{\"contents\": ...}}, \"score\": ...}}]]}}") from None


def make_server(search, host: str, port: int) -> ThreadingHTTPServer:
    """A server that answers the API with `search`; `serve_forever` runs it. Port 0: any free one (see `server_port`)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            try:
                asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                queries = asked["queries"] if asked.get("queries") is not None else [asked["query"]]
                topk = 3 if asked.get("topk") is None else int(asked["topk"])
                if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
                    raise TypeError("queries")
            except (ValueError, KeyError, TypeError, AttributeError):
                return self._answer(422, {"detail": 'expected JSON like {"queries": ["..."], "topk": 3, "return_scores": true}'})
            if self.path.rstrip("/") != "/retrieve":
                return self._answer(404, {"detail": "expected POST /retrieve"})
            results = [search(query, topk) for query in queries]
            scores = asked.get("return_scores", False)
            self._answer(200, {"result": [hits if scores else [hit["document"] for hit in hits] for hits in results]})

        def do_GET(self):
            self._answer(405, {"detail": "expected POST /retrieve"})

        def _answer(self, code, content):
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):  # a line a request would slow a run down
            pass

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise UserError(f"cannot serve at {host}:{port} ({error.strerror}): choose another --host or --port") from None
