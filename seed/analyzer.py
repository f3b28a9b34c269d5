"""The analyzer: a finished trajectory in, a hindsight skill out.

In the paper: A(x_tau) of both stages and the prompt of Figure 10. x_tau holds the task description, episode_success and the
formatted trajectory; the answer is a JSON object with exactly two fields, `episode_summary` and `episode_skill`. In Stage 1
an external model writes the answers, in Stage 2 the policy itself does, with the weights that played the episode.

How it differs from the paper:
1. The answer is read tolerantly (code fences, prose around it, single quotes, trailing commas, further fields): small
   models break JSON in ways that lose nothing. What cannot be read gives no skill and a reason, never an empty skill, and
   the trajectory then takes no part in the distillation (m = 0).
2. A trajectory too long for the analyzer's prompt is shortened in the middle, with a mark; the task, the outcome, the
   first and the last steps stay.
"""
import ast
import json
import random
import re

from seed.envs import words
from seed.errors import check_finite
from seed.sampling import sample
from seed.trajectory import Trajectory

EXAMPLE = "a short rule to act by"
PICTURES = " The pictures show what the agent saw at the steps below, in order."
ASK = (" Analyse the episode and return only valid JSON with exactly two fields:\n"
       '{"episode_summary": "what happened, in one sentence", "episode_skill": "' + EXAMPLE + '"}\n'
       "The skill is read by the agent before it acts, so it says what to do; it does not tell the story of the episode. "
       "After a success, give the decision rules and the order of actions that led to it. After a failure, give a rule "
       "that avoids the failure.\n\nTask description: ")
SUCCESS = {True: "\nepisode_success: success\nInteraction trajectory:\n", False: "\nepisode_success: failure\nInteraction trajectory:\n"}
OBSERVED, ACTED, FINAL = ". Observation: ", "\nAction: ", "End. Observation: "
CLOSE = "\n\nReturn only the JSON object."
MOST_OBJECTS = 8  # how many opening braces of an answer are tried
TOO_LONG = "trajectory too long for the analyzer's prompt"
MARK = "[... {} steps left out ...]"


def fixed(env: str) -> tuple[str, ...]:
    """The sentences that never change: the tiny tokenizer's long tokens."""
    return words(env).analysis + ASK, *SUCCESS.values(), OBSERVED, ACTED, FINAL, CLOSE


def analyze(policy, trajectories: list[Trajectory], seed: str, *, temperature: float, most_prompt_tokens: int,
            most_skill_tokens: int, batch_tokens: int) -> list[list[int]]:
    """s = A_old(x_tau) for each trajectory: sets skill and summary, or skill_error. Returns the sampled answers' ids."""
    prompts, asked, answers = [], [], []
    for trajectory in trajectories:
        question = fit_prompt(trajectory, policy.encode, most_prompt_tokens)
        if question is None:
            trajectory.skill_error = TOO_LONG
        else:
            prompts.append(policy.encode(*question))
            asked.append(trajectory)
    streams = [random.Random(f"{seed} analysis {t.task.id} {t.copy}") for t in asked]
    for trajectory, reply in zip(asked, sample(policy, prompts, streams, most_skill_tokens, temperature, batch_tokens, "analysing")):
        answers.append(reply.action_ids)
        check_finite(reply.logprobs, "log-prob of the analysis", f"seed {seed}, {trajectory.task.id}")
        trajectory.summary, trajectory.skill, trajectory.skill_error = read_answer(policy.decode(reply.action_ids))
        if trajectory.skill is None and not reply.ended:  # (a whole object with chatter behind it, which was cut, is an answer)
            trajectory.skill_error = "cut off"
    return answers


def analyzer_prompt(trajectory: Trajectory, most_steps: int | None = None) -> tuple[str, tuple]:
    """x_tau as one user turn: its text, and the pictures of the steps where the agent saw some. `most_steps`: keep only so many
    steps, from both ends, with a mark in the middle."""
    steps = trajectory.steps
    most = min(most_steps or len(steps), len(steps))
    head, tail = most - most // 2, len(steps) - most // 2   # steps[head:tail] are left out
    lines = [f"{t + 1}{OBSERVED}{s.context.observation}{ACTED}{s.action}" for t, s in enumerate(steps)]
    if head < tail:
        lines[head:tail] = [MARK.format(tail - head)]
    images = tuple(image for s in steps[:head] + steps[tail:] for image in s.context.images)
    text = "".join([words(trajectory.task.env).analysis, PICTURES if images else "", ASK, trajectory.task.description,
                    SUCCESS[trajectory.success], "\n".join(lines), "\n", FINAL, steps[-1].observation_after, CLOSE])
    return text, images


def fit_prompt(trajectory: Trajectory, encode, most_tokens: int) -> tuple[str, tuple] | None:
    """The longest version of x_tau within `most_tokens`, as (text, pictures); None if not even its first and last step fit.

    `encode` turns a user turn into prompt ids (`Policy.encode`).
    """
    fits = lambda question: len(encode(*question)) <= most_tokens
    best = analyzer_prompt(trajectory)
    if fits(best):
        return best
    best, low, high = None, 2, len(trajectory.steps) - 1  # binary search over the number of steps that are kept
    while low <= high:
        middle = (low + high) // 2
        question = analyzer_prompt(trajectory, middle)
        if fits(question):
            best, low = question, middle + 1
        else:
            high = middle - 1
    return best


def answer_json(summary: str, skill: str) -> str:
    """The answer in its one canonical form: what Stage 1 trains on."""
    return json.dumps({"episode_summary": summary, "episode_skill": skill}, ensure_ascii=False)


def read_answer(text: str) -> tuple[str | None, str | None, str | None]:
    """(summary, skill, None), or (None, None, reason) where there is no usable skill. Never raises.

    The first object in the text that has both fields counts, wherever it stands: after reasoning, in a fence, in a list.

    >>> read_answer('{"episode_summary": "Done.", "episode_skill": "Look first."}')
    ('Done.', 'Look first.', None)
    >>> read_answer("I think the agent did well.")
    (None, None, 'no JSON object')
    """
    text = text.rpartition("</think>")[2]
    reason = "no JSON object"
    for start in [m.start() for m in re.finditer("{", text)][:MOST_OBJECTS]:
        data = _read_object(text[start:])
        answer = _fields(data) if data is not None else "cut off" if text.count("{") > text.count("}") else "not valid JSON"
        if not isinstance(answer, str):
            return *answer, None
        if reason in ("no JSON object", "not valid JSON"):  # the first telling reason is reported
            reason = answer
    return None, None, reason


def _fields(data: dict) -> tuple[str, str] | str:
    """(summary, skill) of an answer, or what is wrong with it."""
    values = []
    for name in ("episode_summary", "episode_skill"):
        if name not in data:
            return f"no field {name}"
        if not isinstance(data[name], str):
            return f"{name} is not a text"
        # Half a surrogate pair (a model's broken emoji) can be neither encoded nor written to a file.
        values.append(data[name].encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip())
        if not any(character.isalnum() for character in values[-1]):
            return f"{name} is empty"
    return "the prompt's own example" if values[1].strip(".! ").lower() == EXAMPLE else tuple(values)


def _read_object(text: str) -> dict | None:
    """The JSON object at the start of `text`: as it is, then as a Python literal, then without trailing commas."""
    decoder = json.JSONDecoder(strict=False)  # line breaks inside strings are common and harmless
    try:
        return decoder.raw_decode(text)[0]
    except (ValueError, RecursionError):
        pass
    for end in [m.end() for m in re.finditer("}", text)][:MOST_OBJECTS]:
        try:
            data = ast.literal_eval(text[:end])  # single quotes, trailing commas
            if isinstance(data, dict):
                return data
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
    try:
        return decoder.raw_decode(re.sub(r",(\s*[}\]])", r"\1", text))[0]
    except (ValueError, RecursionError):
        return None
