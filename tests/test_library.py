"""seed/library.py and seed/skills: the text is whole, and a library of own skills keeps the right ones."""
import pytest
from fakes import trajectory

from seed.config import ENVIRONMENTS
from seed.envs.alfworld import TASK_TYPES
from seed.errors import UserError
from seed.library import FOLDER, GENERAL, Library, read_sections
from seed.trajectory import Task


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_every_environment_has_a_library(env):
    sections = read_sections(FOLDER / f"{env}.txt")
    assert GENERAL in sections and len(sections) > 1 and all(len(text) > 10 for text in sections.values())


def test_alfworld_has_a_skill_for_each_type_after_the_general_one():
    library = Library("alfworld")
    skills = [library.skill(Task("alfworld", "x", kind)) for kind in TASK_TYPES]
    general = library.sections[GENERAL]
    assert len(set(skills)) == 6 and all(skill.startswith(general + " ") for skill in skills)
    assert "fridge" in skills[TASK_TYPES.index("pick_cool_then_place_in_recep")]
    assert library.skill(Task("alfworld", "x", "no such type")) is None


def test_sections_are_read_without_comments(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("# for people\n\n[general]\nA.\nB.\n\n[look]\n# not this\nC.\n")
    assert read_sections(path) == {"general": "A. B.", "look": "C."}


def test_bad_libraries_are_named(tmp_path):
    (tmp_path / "x.txt").write_text("A skill.\n[general]\n")
    with pytest.raises(UserError, match="before the first"):
        read_sections(tmp_path / "x.txt")
    with pytest.raises(UserError, match="no skill library"):
        read_sections(tmp_path / "y.txt")


def test_a_grown_library_prefers_successes_and_then_what_is_new():
    library, task = Library("alfworld", grows=True), trajectory().task
    assert library.skill(task) is None

    def grow(update, *played):
        members = []
        for copy, (success, skill) in enumerate(played):
            t = trajectory(success=success, copy=copy)
            t.skill = skill
            members.append(t)
        library.grow(members, update)
        return library.skill(task)
    assert grow(0, (False, None)) is None
    assert grow(0, (False, "a"), (False, "b")) == "b"
    assert grow(1, (False, "c"), (True, "d"), (False, "e")) == "d"
    assert grow(2, (False, "f"), (True, None)) == "d"
    assert grow(3, (True, "g")) == "g" and library.own[task.id]["update"] == 4
    assert library.skill(Task("alfworld", "another game", task.type)) is None


def test_a_grown_library_comes_back_from_its_file(tmp_path):
    library, t = Library("alfworld", grows=True), trajectory()
    t.skill = "Schau in die Küche 🍎."
    library.grow([t], 0)
    library.save(tmp_path / "library.json")
    again = Library("alfworld", grows=True)
    again.load(tmp_path / "library.json")
    assert again.own == library.own and again.skill(t.task) == t.skill
