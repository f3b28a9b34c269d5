"""seed/augment.py: H sets the skill and nothing else. (What it does to the prompt is in test_prompts.py.)"""
import random
from dataclasses import fields

import pytest
from fakes import random_context

from seed.augment import H


def test_h_changes_one_field():
    rng = random.Random(0)
    for _ in range(100):
        context = random_context(rng)
        after = H(context, "Look first.")
        assert [f.name for f in fields(context) if getattr(context, f.name) != getattr(after, f.name)] == ["skill"]
        assert context.skill is None and H(context, "Look first.") == after   # pure and deterministic


def test_an_empty_skill_is_refused():
    with pytest.raises(ValueError, match="needs a skill"):
        H(random_context(random.Random(0)), "  ")
