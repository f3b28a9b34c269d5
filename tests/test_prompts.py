"""seed/prompts.py: the rendering of Fig. 11's variables, and the parser's table."""
import json
import random

import pytest
from conftest import shared
from fakes import random_context, random_text

from seed.augment import H
from seed.envs.alfworld import WORDS
from seed.envs.base import read_action
from seed.prompts import render, skill_section
from seed.trajectory import Context, Task

GO = ("go to desk 1", "look")


@pytest.mark.parametrize("text, action, valid, admissible", [
    ("<think>a</think><action>look</action>", "look", True, True),
    ("<think>a</think>\n<action> Go to Desk 1 </action> and that is it", "go to desk 1", True, True),   # case, text after
    ("Well. <think>a</think> so <ACTION>look</ACTION>", "look", True, True),                            # action tags: any case
    ("<THINK>a</THINK><action>look</action>", "look", False, True),                                     # think tags: not
    ("<action>look</action>", "look", False, True),                                                     # no reasoning
    ("<think>a<action>look</action>", "look", False, True),                                             # think never closed
    ("<think>a <action>look</action></think>", "look", False, True),                                    # action inside think
    ("<action>look</action><think>a</think>", "look", False, True),                                     # wrong order
    ("</think>a<think><action>look</action>", "look", False, True),                                     # reversed think
    ("<think>a</think></action>look<action>", "a</think></action>look<action>", False, False),             # reversed action
    ("<think>a</think></action><action>look</action>", "look", False, True),                            # stray closing tag
    ("<think>a</think><action><action>look</action>", "<action>look", False, False),                    # nested
    ("<think>a</think><action>look</action><action>fly</action>", "look", True, True),                  # several: the first
    ("<think>a</think><action>fly to the moon</action>", "fly to the moon", True, False),               # inadmissible, well formed
    ("<think>a</think><action></action>", "", True, False),
    ("<think>a</think><action>go to desk 1", ">a</think><action>go to desk 1", False, False), # unclosed
    ("look", "look", False, True),                                                                      # nothing but the action
    ("", "", False, False),
    ("<think>去</think><action>look</action>", "look", False, True),                                    # the language guard
    ("<think>İİİ</think><action>look</action>", "look", True, True),                                    # lower() changes lengths
])
def test_parser_table(text, action, valid, admissible):
    reply = read_action(text, GO)
    assert (reply.action, reply.valid, reply.admissible) == (action, valid, admissible)


def test_parser_never_raises():
    rng = random.Random(0)
    pieces = ["<think>", "</think>", "<action>", "</action>", "<ACTION>", "look", "\n", "去", "<", ">", ""]
    for _ in range(3000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(0, 9)))
        reply = read_action(text, GO)
        if reply.valid:
            assert text.find("<think>") < text.find("</think>") < text.lower().find("<action>") < text.lower().find("</action>")


def test_worked_cases_of_the_original_harness():
    for case in json.loads(shared("specs/cases_alfworld.json").read_text())["projection"]:
        reply = read_action(case["text"], ())
        assert (reply.action, int(reply.valid)) == (case["alfworld_action"], case["alfworld_valid"]), case["text"]


def test_worked_prompts_of_the_original_harness():
    cases = json.loads(shared("specs/cases_alfworld.json").read_text())
    history = []
    for step in cases["prompt_steps"]:
        admissible = tuple(a for a in step["admissible"] if a != "help")
        context = Context(Task("alfworld", "a", "b", cases["task"]), tuple(history[-2:]), step["observation"], admissible,
                          step["current_step"])
        text = render(context)
        assert f"[{step['admissible_text']}]" in text and cases["task"] in text and step["observation"] in text
        if step["action_history"] is None:
            assert "Steps taken" not in text and "[Observation" not in text
        else:
            assert f"{step['action_history']}\n" in text
            assert f"Steps taken so far: {step['step_count']}." in text and f"being {step['history_length_shown']}:" in text
        history.append((step["observation"], step["action_taken"]))


def test_a_skill_adds_its_section_and_changes_nothing_else():
    rng = random.Random(1)
    for _ in range(500):
        context, skill = random_context(rng), random_text(rng)
        with_skill, section = render(H(context, skill)), skill_section(skill)
        place = len(WORDS.head) + len(context.task.description)
        assert with_skill[place:place + len(section)] == section              # next to the task description
        assert with_skill[:place] + with_skill[place + len(section):] == render(context)


def test_history_numbers_are_those_of_the_episode():
    context = Context(Task("alfworld", "a", "b", "do."), (("o7", "a7"), ("o8", "a8")), "o9", ("look",), 9)
    text = render(context)
    assert "[Observation 7: 'o7', Action 7: 'a7']\n[Observation 8: 'o8', Action 8: 'a8']" in text and "at step 9" in text
