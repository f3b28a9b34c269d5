"""seed/prompts.py: the rendering of Fig. 11's variables. (Its reader: test_base.py.)"""
import json
import random

from conftest import shared
from fakes import random_context, random_text

from seed.augment import H
from seed.envs.alfworld import WORDS
from seed.prompts import render, skill_section
from seed.trajectory import Context, Task

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
