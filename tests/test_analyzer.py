"""seed/analyzer.py: tolerant reading, shortening, and what happens to a trajectory without a usable answer."""
import json
import random

import pytest
from fakes import random_policy, random_text, trajectory

from seed.analyzer import ASK, MARK, TOO_LONG, analyze, analyzer_prompt, answer_json, fit_prompt, read_answer

GOOD = '{"episode_summary": "It worked.", "episode_skill": "Look first."}'


@pytest.mark.parametrize("text", [
    GOOD,
    f"```json\n{GOOD}\n```",
    f"```\n{GOOD}```",
    f"Here is my analysis:\n{GOOD}\nI hope this helps.",
    "<think>The set {mug, shelf} matters.</think>" + GOOD,
    '<think>{"episode_summary": "No.", "episode_skill": "No."}</think>' + GOOD,
    "Use the form {summary, skill}: " + GOOD,
    f"[{GOOD}]",
    f'{{"result": {GOOD}}}',
    f"{{{GOOD}}}",                                                                               # double braces
    f"Format: {ASK.splitlines()[1]} Answer: {GOOD}",              # the example first
    '{"episode_summary": "It worked.", "episode_skill": "Look first.",}',                        # trailing comma
    "{'episode_summary': 'It worked.', 'episode_skill': 'Look first.'}",                         # single quotes
    "{'episode_summary': 'It worked.', 'episode_skill': 'Look first.',}",
    '{"episode_skill": "Look first.", "episode_summary": "It worked."}',                         # other order
    '{"episode_summary": "It worked.", "episode_skill": "Look first.", "confidence": 0.9}',      # further field
    '{\n  "episode_summary" : "It worked." ,\n  "episode_skill" : "Look first."\n}',
    '{"episode_summary": " It worked. ", "episode_skill": "Look first.\\n"}',                    # blanks around
    GOOD + GOOD.replace("first", "last"),                                                        # two objects: the first
    GOOD + "}",
])
def test_usable_answers(text):
    assert read_answer(text) == ("It worked.", "Look first.", None)


@pytest.mark.parametrize("text, reason", [
    ("", "no JSON object"),
    ("   ", "no JSON object"),
    ("The agent did well.", "no JSON object"),
    ("null", "no JSON object"),
    ("[]", "no JSON object"),
    ('"episode_skill"', "no JSON object"),
    ("{}", "no field episode_summary"),
    ('{"episode_summary": "It worked."}', "no field episode_skill"),
    ('{"summary": "It worked.", "skill": "Look first."}', "no field episode_summary"),
    ('{"episode_summary": "It worked.", "episode_skill": ""}', "episode_skill is empty"),
    ('{"episode_summary": "It worked.", "episode_skill": "  \\n "}', "episode_skill is empty"),
    ('{"episode_summary": "", "episode_skill": "Look first."}', "episode_summary is empty"),
    ('{"episode_summary": "It worked.", "episode_skill": ["Look first."]}', "episode_skill is not a text"),
    ('{"episode_summary": "It worked.", "episode_skill": {"rule": "Look first."}}', "episode_skill is not a text"),
    ('{"episode_summary": "It worked.", "episode_skill": null}', "episode_skill is not a text"),
    ('{"episode_summary": 3, "episode_skill": "Look first."}', "episode_summary is not a text"),
    ('{"episode_summary": "It worked.", "episode_skill": "Look fi', "cut off"),
    ('{"episode_summary": "It worked.", "episode_skill": "A short rule to act by."}', "the prompt's own example"),
    ('{"episode_summary": "It worked.", "episode_skill": "Look first."', "cut off"),
    ('{"episode_summary"', "cut off"),
    ("{", "cut off"),
    ('{"episode_summary" "It worked."}', "not valid JSON"),
    ("{episode_summary: It worked.}", "not valid JSON"),
    ("{{'a': 1}}", "no field episode_summary"),
    ("{[1]: 2}", "not valid JSON"),
    ('{"episode_summary": "It worked.", "episode_skill": "..."}', "episode_skill is empty"),
    ('{"episode_summary": "It worked.", "episode_skill": "\u200b"}', "episode_skill is empty"),
    ('{"episode_summary": "what happened, in one sentence", "episode_skill": "a short rule to act by"}', "the prompt's own example"),
    ("{'episode_summary'}", "not valid JSON"),                                                   # a Python set
    ("{" * 5000 + "}" * 5000, "not valid JSON"),                                                 # deep nesting
])
def test_unusable_answers(text, reason):
    assert read_answer(text) == (None, None, reason)


def test_broken_emoji_can_be_encoded_and_written():
    for text in ("{'episode_summary': 'S \\ud83d\\ude00', 'episode_skill': 'Look \\ud83d\\ude00'}",
                 '{"episode_summary": "S", "episode_skill": "Look \\ud83d"}'):
        summary, skill, error = read_answer(text)
        assert error is None and (summary + skill).encode()
        assert random_policy().encode(skill)


def test_reading_never_raises_and_never_gives_an_empty_skill():
    rng = random.Random(0)
    for _ in range(2000):
        text = "".join(rng.choice(["{", "}", "[", "]", '"', "'", ",", ":", "episode_skill", "episode_summary", "1", "a", "\\ud83d", "\n"])
                       for _ in range(rng.randint(1, 14)))
        summary, skill, error = read_answer(text)
        assert (error is None) == bool(skill)
    for _ in range(2000):
        text = "".join(c for c in GOOD if rng.random() > 0.02)[:rng.randint(0, 90)] + random_text(rng, 3)
        summary, skill, error = read_answer(text)
        assert (error is None) == bool(skill and skill.strip()) == bool(summary)


def test_canonical_answers_are_read_back():
    rng = random.Random(1)
    for _ in range(300):
        summary, skill = random_text(rng).strip() + "x", random_text(rng).strip() + "x"
        assert read_answer(answer_json(summary, skill)) == (summary, skill, None)


def test_prompt_holds_task_outcome_and_all_steps():
    for success in (True, False):
        text, _ = analyzer_prompt(trajectory(steps=4, success=success, description="put a mug in shelf."))
        assert "put a mug in shelf." in text and f"episode_success: {'success' if success else 'failure'}" in text
        assert all(f"go to shelf {k}" in text and f"You see a mug 1. ({k})" in text for k in range(1, 6) if k < 5)
        assert "You see a mug 1. (5)" in text and '"episode_summary"' in text and '"episode_skill"' in text


def test_long_trajectories_are_shortened_in_the_middle():
    t = trajectory(steps=30, description="put a mug in shelf.")
    encode = lambda text, images: text.split()
    whole = len(encode(*analyzer_prompt(t)))
    text, _ = fit_prompt(t, encode, whole - 1)
    assert MARK.format(1) in text                                    # as little as possible is left out
    for most in range(whole - 1, len(encode(*analyzer_prompt(t, 2))) - 1, -7):
        text, _ = fit_prompt(t, encode, most)
        assert len(text.split()) <= most and "put a mug in shelf." in text and "episode_success: success" in text
        assert "go to shelf 1\n" in text and "go to shelf 30\n" in text and "(31)" in text and "left out" in text
    assert fit_prompt(t, encode, whole) == analyzer_prompt(t)
    assert fit_prompt(t, encode, 20) is None


def test_analyze_sets_a_skill_or_a_reason():
    policy = random_policy()
    ts = [trajectory(copy=i) for i in range(3)] + [trajectory(steps=9, text="long " * 400, copy=3)]
    answers = analyze(policy, ts, "s", temperature=1.0, most_prompt_tokens=300, most_skill_tokens=8, batch_tokens=4096)
    assert len(answers) == 3 and ts[3].skill_error == TOO_LONG
    for t in ts:
        assert t.skill is None and t.summary is None and t.skill_error  # random weights write no JSON


def test_analyze_reads_what_was_sampled(monkeypatch):
    from seed import analyzer
    policy = random_policy()
    from seed.sampling import Reply

    def analysed(text, ended):
        ids = policy.tokenizer.encode(text) + [policy.tokenizer.eos_token_id] * ended
        monkeypatch.setattr(analyzer, "sample", lambda *a, **k: [Reply(ids, [0.0] * len(ids), ended)])
        t = trajectory()
        analyze(policy, [t], "s", temperature=1.0, most_prompt_tokens=900, most_skill_tokens=99, batch_tokens=4096)
        return t.summary, t.skill, t.skill_error
    assert analysed(GOOD, True) == ("It worked.", "Look first.", None)
    assert analysed(GOOD + " And this", False) == ("It worked.", "Look first.", None)   # whole, and then it went on and on
    assert analysed(GOOD[:-3], False) == (None, None, "cut off") == analysed("I would say that", False)


def test_answers_are_json_with_two_fields():
    assert set(json.loads(answer_json("a", "b"))) == {"episode_summary", "episode_skill"}
