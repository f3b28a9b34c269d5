"""Who writes the hindsight skills of Stage 1: the A_ext of the paper's section 2.

The paper uses an external model. Here it is one of three, all given the same prompt (Figure 10) and held to the same form:
- policy: the base model annotates its own trajectories (no network, any preset; quality is what the model has);
- openai: any endpoint that speaks OpenAI's chat completions. From the environment: OPENAI_BASE_URL, OPENAI_MODEL,
  OPENAI_API_KEY. Answers are appended to a file as they come, so an interrupted run pays for nothing twice;
- expert: rules (`seed/expert.py`), ALFWorld only, for the tiny preset and for tests.

An annotation is (summary, skill, None), or (None, None, reason) where there is no well-formed one.
"""
import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from seed.analyzer import TOO_LONG, analyze, fit_prompt, read_answer
from seed.errors import UserError
from seed.expert import hindsight
from seed.runlog import append_line, read_lines
from seed.trajectory import Trajectory

RETRIES = 5
WAIT = 2.0       # seconds before the first retry; doubled each time
AT_ONCE = 8      # requests under way at the same time


def annotate(trajectories: list[Trajectory], policy, config, cache: Path) -> list[tuple]:
    """One annotation for each trajectory, by the annotator that the configuration names."""
    if config.annotator == "expert":
        answers = [hindsight(t) for t in trajectories]
        return [(*a, None) if a else (None, None, "the task's sentence is none of ALFWorld's templates") for a in answers]
    if config.annotator == "openai":
        return _endpoint(trajectories, policy, config, cache)
    analyze(policy, trajectories, f"stage 1, seed {config.seed}", temperature=config.analyzer_temperature,
            most_prompt_tokens=config.analyzer_prompt_tokens, most_skill_tokens=config.skill_tokens,
            batch_tokens=config.sample_tokens)
    return [(t.summary, t.skill, t.skill_error) for t in trajectories]


def _endpoint(trajectories, policy, config, cache):
    base, model, key = (os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_MODEL", "OPENAI_API_KEY"))
    if not base or not model:
        raise UserError("--annotator openai needs OPENAI_BASE_URL and OPENAI_MODEL (and OPENAI_API_KEY where the endpoint asks "
                        "for one), for example OPENAI_BASE_URL=https://host/v1 OPENAI_MODEL=name; or take --annotator policy")
    prompts = [fit_prompt(t, policy.encode, config.analyzer_prompt_tokens) for t in trajectories]
    known = {entry["key"]: entry["answer"] for entry in map(json.loads, read_lines(cache))}
    # The same question asked twice (two equal trajectories) is paid for once.
    missing = {_key(model, p): p for p in prompts if p is not None and _key(model, p) not in known}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ask = lambda item: (item[0], chat(base, model, key, item[1]))
        try:
            for digest, answer in tqdm(pool.map(ask, missing.items()), total=len(missing), desc="annotating", unit="answer", disable=None):
                known[digest] = answer
                append_line(cache, json.dumps({"key": digest, "answer": answer}, ensure_ascii=False))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [read_answer(known[_key(model, p)]) if p is not None else (None, None, TOO_LONG) for p in prompts]


def chat(base: str, model: str, key: str | None, prompt: str) -> str:
    """One answer of an OpenAI-compatible endpoint. Busy servers and broken connections are asked again; UserError else."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(f"{base.rstrip('/')}/chat/completions", body, headers)
    for attempt in range(RETRIES):
        if attempt:
            time.sleep(WAIT * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                text = response.read().decode("utf-8", "replace")
            content = json.loads(text)["choices"][0]["message"]["content"]
            if isinstance(content, str):
                return content
            problem = f"answered without text: {text[:100]!r}"
        except urllib.error.HTTPError as error:
            problem = f"answered {error.code} {error.reason}"
            if error.code not in (408, 409, 429) and error.code < 500:
                break  # a wrong key, model or address does not mend itself
        except (urllib.error.URLError, OSError) as error:
            problem = f"cannot be reached: {getattr(error, 'reason', error)}"
        except (ValueError, KeyError, IndexError, TypeError):
            problem = f"answered something that is no chat completion: {text[:100]!r}"
    raise UserError(f"the endpoint {request.full_url} {problem} ({attempt + 1} attempts); the answers so far are kept: mend "
                    f"OPENAI_BASE_URL, OPENAI_MODEL or OPENAI_API_KEY and run the same command with --resume")


def _key(model, prompt):
    return hashlib.sha256(f"{model}\n{prompt}".encode()).hexdigest()
