"""seed/methods.py: the table is consistent, and SEED differs from GRPO where the paper says so."""
from dataclasses import asdict

import pytest
from conftest import ROOT

from seed.config import Config, PRESETS
from seed.losses import opd_loss
from seed.methods import METHODS


def test_seed_is_grpo_with_a_teacher_and_a_loss():
    grpo, seed = asdict(METHODS["grpo"]), asdict(METHODS["seed"])
    assert {name for name in grpo if grpo[name] != seed[name]} == {"teacher", "loss"}
    assert seed["teacher"] == "hindsight" and seed["loss"] is opd_loss


def test_library_skills_in_seed_are_sdar():
    seed, sdar = asdict(METHODS["seed"]), asdict(METHODS["sdar"])
    assert {name for name in seed if seed[name] != sdar[name]} == {"teacher"} and sdar["teacher"] == "library"


@pytest.mark.parametrize("name", list(METHODS))
def test_every_row_is_consistent(name):
    m = METHODS[name]
    assert m.acts_with in (None, "library") and m.teacher in (None, "library", "grown", "hindsight", "expert", "workflow", "other")
    assert (m.teacher is not None) == (m.loss is not None or m.credit is not None)     # a teacher is there for something
    assert m.reward or m.loss                                                            # something is learned from
    assert m.trains or not m.teacher


def test_the_table_of_the_paper_is_whole():
    rows = {"vanilla", "skill-prompt", "grpo", "skill-grpo", "opsd", "grpo+opsd", "skill-sd", "rlsd", "sdar", "seed"}
    assert rows <= set(METHODS) and Config().method == "seed" and all("method" not in preset for preset in PRESETS.values())
    readme = (ROOT / "README.md").read_text()
    assert all(row in readme for row in rows)
