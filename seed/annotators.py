"""Who writes the hindsight skills of Stage 1: the paper's A_ext.

The paper uses an external model. Here it is one of three, all given the same prompt (Figure 10) and held to the same form:
- policy: the base model annotates its own trajectories (no network, any preset; quality is what the model has);
- openai: any endpoint that speaks OpenAI's chat completions. From the environment: OPENAI_BASE_URL, OPENAI_MODEL,
  OPENAI_API_KEY. Answers are appended to a file as they come, so an interrupted run pays for nothing twice;
- expert: rules (`seed/envs/NAME_expert.py`), for the tiny preset and for tests.

An annotation is (summary, skill, None), or (None, None, reason) where there is no well-formed one.
"""
import hashlib
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

from seed.analyzer import TOO_LONG, analyze, fit_prompt, read_answer
from seed.envs import expert
from seed.errors import UserError
from seed.runlog import append_line, read_lines
from seed.trajectory import Trajectory, to_png

RETRIES = 5
WAIT = 2.0       # seconds before the first retry; doubled each time
AT_ONCE = 8      # requests under way at the same time


def annotate(trajectories: list[Trajectory], policy, config, cache: Path) -> list[tuple]:
    """One annotation for each trajectory, by the annotator that the configuration names."""
    if config.annotator == "expert":
        answers = [expert(config.env).hindsight(t) for t in trajectories]
        return [(*a, None) if a else (None, None, "the task's sentence is none of those that the rules know") for a in answers]
    if config.annotator == "openai":
        return _ask_endpoint(trajectories, policy, config, cache)
    analyze(policy, trajectories, f"stage 1, seed {config.seed}", temperature=config.analyzer_temperature,
            most_prompt_tokens=config.analyzer_prompt_tokens, most_skill_tokens=config.skill_tokens,
            batch_tokens=config.sample_tokens)
    return [(t.summary, t.skill, t.skill_error) for t in trajectories]


def endpoint() -> tuple[str, str, str]:
    """(base URL, model, key) of --annotator openai, from the environment."""
    base, model, key = (os.environ.get(f"OPENAI_{name}", "").strip() for name in ("BASE_URL", "MODEL", "API_KEY"))
    if not base or not model:
        raise UserError("--annotator openai needs OPENAI_BASE_URL and OPENAI_MODEL (and OPENAI_API_KEY where the endpoint asks "
                        "for one), for example OPENAI_BASE_URL=https://host/v1 OPENAI_MODEL=name; or take --annotator policy")
    return base, model, key


def check_annotator(config) -> None:
    """Before anything is played: what the annotator needs is there."""
    if config.annotator == "openai":
        endpoint()


def _ask_endpoint(trajectories, policy, config, cache):
    base, model, key = endpoint()
    prompts = [fit_prompt(t, policy.encode, config.analyzer_prompt_tokens) for t in trajectories]
    digest = lambda question: hashlib.sha256(json.dumps([model, message(question)]).encode()).hexdigest()
    known = {entry["key"]: entry["answer"] for entry in map(json.loads, read_lines(cache))}
    refused = {}
    # The same question asked twice (two equal trajectories) is paid for once.
    missing = {digest(p): p for p in prompts if p is not None and digest(p) not in known}

    def ask(item):
        try:
            answer = chat(base, model, key, item[1])
        except Refused as error:
            refused[item[0]] = str(error)
            return
        with lock:  # kept as soon as it is there, whatever becomes of the others
            known[item[0]] = answer
            append_line(cache, json.dumps({"key": item[0], "answer": answer}))

    lock = threading.Lock()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            asked = [pool.submit(ask, item) for item in missing.items()]
            for done in tqdm(as_completed(asked), total=len(asked), desc="annotating", unit="answer", disable=None):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # those under way finish and are kept
            raise
    return [(None, None, TOO_LONG) if p is None else (None, None, refused[digest(p)]) if digest(p) in refused
            else read_answer(known[digest(p)]) for p in prompts]


class Refused(Exception):
    """The endpoint will not answer this one question: too long for it, or against its rules."""


def message(question: tuple[str, tuple]) -> str | list[dict]:
    """The user turn for (text, pictures) in the form of the endpoint: text alone, or parts."""
    text, images = question
    if not images:
        return text
    return [*({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{to_png(image)}"}} for image in images),
            {"type": "text", "text": text}]


def chat(base: str, model: str, key: str, question: tuple[str, tuple]) -> str:
    """One answer of an OpenAI-compatible endpoint. Busy servers and broken connections are asked again.

    Refused where only this question is turned down, UserError where the endpoint is not usable.
    """
    url, text = f"{base.rstrip('/')}/chat/completions", ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": message(question)}]}).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    for attempt in range(RETRIES):
        if attempt:
            time.sleep(WAIT * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=300) as response:
                text = response.read().decode("utf-8", "replace")
            content = json.loads(text)["choices"][0]["message"]["content"]
            if isinstance(content, str):
                return content
            problem = f"answered without text: {text[:100]!r}"
        except urllib.error.HTTPError as error:
            problem = f"answered {error.code} {error.reason}"
            if error.code in (400, 413, 422):
                raise Refused(f"the endpoint {problem}") from None
            if error.code not in (408, 409, 429) and error.code < 500:
                break  # a wrong key, model or address does not mend itself
        except (OSError, http.client.HTTPException) as error:
            problem = f"cannot be reached: {getattr(error, 'reason', error)}"
        except (ValueError, KeyError, IndexError, TypeError) as error:
            problem = f"answered something that is no chat completion: {text[:100]!r}" if text else f"cannot be asked: {error}"
    raise UserError(f"the endpoint {url} {problem} ({attempt + 1} attempts); the answers so far are kept: mend OPENAI_BASE_URL, "
                    f"OPENAI_MODEL or OPENAI_API_KEY and run the same command with --resume")
