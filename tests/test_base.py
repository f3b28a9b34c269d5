"""seed/envs/base.py: the reader of <action> replies, and folders that are whole or not there."""
import json
import random

import pytest
from conftest import shared

from seed.envs.base import new_folder, read_action, tagged

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


def test_what_the_rules_write_is_read():
    assert read_action(tagged("find mug", "look"), GO) == read_action("<think>find mug</think><action>look</action>", GO)
    assert read_action(tagged("find mug", "look"), GO).valid


def test_a_folder_is_there_whole_or_not_at_all(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "data") as unfinished:
        unfinished.mkdir()
        (unfinished / "half").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "data") as unfinished:
        unfinished.mkdir()
        (unfinished / "whole").write_text("x")
        assert not (tmp_path / "data").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"] and (tmp_path / "data" / "whole").exists()
