"""seed/annotators.py against a stub server: retries, garbage, interruption without paying twice."""
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fakes import random_policy, trajectory

from seed import annotators
from seed.annotators import annotate, chat
from seed.config import make_config
from seed.errors import UserError

ANSWER = json.dumps({"episode_summary": "It worked.", "episode_skill": "Look first."})


def completion(text):
    return 200, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]})


@pytest.fixture
def server(monkeypatch):
    """A server that answers from `script` (functions of the request), the last entry for ever; it records what was asked."""
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                stub.asked.append((self.path, dict(self.headers), body))
                answer = stub.script[min(len(stub.asked), len(stub.script)) - 1]
            status, text, *delay = answer
            time.sleep(*delay or [0])
            self.send_response(status)
            if status == 299:                                    # more is promised than comes
                self.send_header("Content-Length", "99999")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args):
            pass
    lock = threading.Lock()
    stub = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.asked, stub.script = [], [completion(ANSWER)]
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    stub.url = f"http://127.0.0.1:{stub.server_port}/v1"
    monkeypatch.setattr(annotators, "WAIT", 0.01)
    monkeypatch.setattr(annotators, "AT_ONCE", 1)                # in order; one test asks at once
    for name, value in (("BASE_URL", stub.url), ("MODEL", "stub-1"), ("API_KEY", "secret")):
        monkeypatch.setenv(f"OPENAI_{name}", value)
    yield stub
    stub.shutdown()


def run(tmp_path, number=3, annotator="openai", **change):
    ts = [trajectory(steps=k + 2, copy=k) for k in range(number)]
    return annotate(ts, random_policy(), make_config({"preset": "tiny", "annotator": annotator, **change}), tmp_path / "annotations.jsonl")


def test_one_question_a_trajectory(server, tmp_path):
    assert run(tmp_path) == [("It worked.", "Look first.", None)] * 3
    path, headers, body = server.asked[0]
    assert len(server.asked) == 3 and path == "/v1/chat/completions" and headers["Authorization"] == "Bearer secret"
    assert body["model"] == "stub-1" and "episode_success: success" in body["messages"][0]["content"]


def test_nothing_is_paid_twice(server, tmp_path):
    run(tmp_path)
    assert run(tmp_path, number=4) == [("It worked.", "Look first.", None)] * 4 and len(server.asked) == 4
    with open(tmp_path / "annotations.jsonl", "a") as file:
        file.write('{"key": "half a li')                     # killed while writing
    assert len(run(tmp_path, number=5)) == 5 and len(server.asked) == 5
    assert len((tmp_path / "annotations.jsonl").read_text().splitlines()) == 5


def test_equal_trajectories_are_asked_once(server, tmp_path):
    config = make_config({"preset": "tiny", "annotator": "openai"})
    answers = annotate([trajectory(), trajectory(copy=1)], random_policy(), config, tmp_path / "a.jsonl")
    assert len(answers) == 2 and len(server.asked) == 1


def test_an_interrupted_run_keeps_its_answers(server, tmp_path):
    server.script = [completion(ANSWER), completion(ANSWER), (401, "who are you?")]
    with pytest.raises(UserError, match="401.*the answers so far are kept"):
        run(tmp_path)
    server.script = [completion(ANSWER)]
    asked = len(server.asked)
    assert len(run(tmp_path)) == 3 and len(server.asked) == asked + 1


def test_answers_are_kept_though_an_earlier_question_fails_late(server, tmp_path, monkeypatch):
    monkeypatch.setattr(annotators, "AT_ONCE", 4)
    server.script = [(401, "no", 0.5), completion(ANSWER)]
    with pytest.raises(UserError, match="401"):
        run(tmp_path, number=4)
    assert len((tmp_path / "annotations.jsonl").read_text().splitlines()) == 3
    asked = len(server.asked)
    assert run(tmp_path, number=4) == [("It worked.", "Look first.", None)] * 4 and len(server.asked) == asked + 1


def test_one_refused_question_is_one_skill_less(server, tmp_path):
    server.script = [completion(ANSWER), (400, "context length exceeded"), completion(ANSWER)]
    assert [error for _, _, error in run(tmp_path)] == [None, "the endpoint answered 400 Bad Request", None]


def test_odd_characters_survive_the_file(server, tmp_path):
    server.script = [completion(json.dumps({"episode_summary": "a\u2028b", "episode_skill": "c\x85d \ud83d"}))]
    assert run(tmp_path, number=1) == run(tmp_path, number=1) == [("a\u2028b", "c\x85d \ufffd", None)] and len(server.asked) == 1


def test_busy_servers_are_asked_again_and_later_each_time(server, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(annotators.time, "sleep", waits.append)
    monkeypatch.setattr(annotators, "RETRIES", 9)
    server.script = [(429, "slow down"), (408, ""), (409, ""), (503, "busy"), (200, "<html>gateway"), (299, "{"), completion(ANSWER)]
    assert run(tmp_path, number=1) == [("It worked.", "Look first.", None)] and len(server.asked) == 7
    waits = [w for w in waits if w]
    assert waits == [0.01 * 2 ** k for k in range(6)]


@pytest.mark.parametrize("answer, message", [
    ((200, "<html>It works!</html>"), "no chat completion: '<html>It works!"),
    ((200, json.dumps({"choices": []})), "no chat completion"),
    ((200, json.dumps([1])), "no chat completion"),
    ((200, json.dumps({"choices": [{"message": {"content": None}}]})), "without text"),
    ((500, "oops"), "answered 500"),
    ((404, "no such model"), "answered 404")])
def test_garbage_ends_in_one_line(server, answer, message):
    server.script = [answer]
    with pytest.raises(UserError, match=message) as error:
        chat(server.url, "stub-1", "", ("hello", ()))
    assert "\n" not in str(error.value) and len(server.asked) == (1 if answer[0] == 404 else annotators.RETRIES)


@pytest.mark.parametrize("base, key, message", [
    ("http://127.0.0.1:9/v1", "", "cannot be reached"), ("localhost/v1", "", "cannot be asked: unknown url type"),
    ("http://host:bad/v1", "", "cannot be reached"), ("http://127.0.0.1:9/v1", "k\u20acy", "cannot be")])
def test_endpoints_that_cannot_be_asked(monkeypatch, base, key, message):
    monkeypatch.setattr(annotators, "WAIT", 0.0)
    with pytest.raises(UserError, match=message):
        chat(base, "m", key, ("hello", ()))


def test_malformed_annotations_are_reasons_and_no_error(server, tmp_path):
    server.script = [completion("I think it went well."), completion(ANSWER), completion('{"episode_summary": "x"}')]
    errors = [error for _, _, error in run(tmp_path)]
    assert errors == ["no JSON object", None, "no field episode_skill"]


def test_missing_settings_say_what_to_set(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UserError, match="needs OPENAI_BASE_URL and OPENAI_MODEL"):
        run(tmp_path)


def test_rules_and_the_policy_itself(tmp_path):
    assert run(tmp_path, annotator="expert")[0][2] is None
    assert all(skill is None and error for _, skill, error in run(tmp_path, annotator="policy", skill_tokens=5))
