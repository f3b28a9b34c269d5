"""Skill libraries: skills that belong to no trajectory, for the baselines of Table 1.

In the paper: what SEED does without. SDAR, RLSD and OPSD show the teacher a skill from a *static* library (SkillRL, arXiv
2602.08234: general skills and those of the task's type), skill-prompt and skill-grpo act with one; Skill-SD's library
*grows* from the policy's own trajectories.

- static: `seed/skills/ENV.txt`, a text to read and edit: a [section] for each task type, and [general];
- grown: for each task the skill of its latest success or, while there is none, of its latest failure. An update's skills go
  in before its teacher looks one up, so members of a group that failed are taught by the one that did not.

How it differs from the paper:
1. The library's text is our own, and short; retrieval is by task type and by task, not by embeddings.
"""
import json
from pathlib import Path

from seed.errors import UserError
from seed.methods import METHODS
from seed.trajectory import Task, Trajectory

FOLDER = Path(__file__).parent / "skills"
GENERAL = "general"


def library_for(config) -> "Library | None":
    """The library that the configuration's method acts or teaches with, if it does."""
    method = METHODS[config.method]
    uses = method.acts_with or method.teacher in ("library", "grown")
    return Library(config.env, grows=method.teacher == "grown") if uses else None


class Library:
    def __init__(self, env: str, grows: bool = False):
        self.sections = read_sections(FOLDER / f"{env}.txt")
        self.grows = grows
        self.own: dict[str, dict] = {}   # task id -> {"skill", "success", "update"}

    def skill(self, task: Task) -> str | None:
        """What is known for a task: None where that is nothing."""
        if self.grows:
            return self.own[task.id]["skill"] if task.id in self.own else None
        if task.type not in self.sections:
            return None
        return " ".join(text for text in (self.sections.get(GENERAL), self.sections[task.type]) if text)

    def grow(self, trajectories: list[Trajectory], update: int) -> None:
        """Take in the usable skills of an update: a success replaces what is there, a failure only a failure."""
        for t in sorted(trajectories, key=lambda t: (t.group, t.copy)):
            known = self.own.get(t.task.id)
            if t.skill is not None and (known is None or t.success or not known["success"]):
                self.own[t.task.id] = {"skill": t.skill, "success": t.success, "update": update + 1}

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.own, indent=1, ensure_ascii=False), encoding="utf-8")

    def load(self, path: Path) -> None:
        self.own = json.loads(path.read_text(encoding="utf-8"))


def read_sections(path: Path) -> dict[str, str]:
    """{section: its lines, joined by blanks} of a library's text."""
    if not path.exists():
        raise UserError(f"there is no skill library {path}: write one, or take a method without a library")
    sections, name = {}, None
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
            sections[name] = ""
        elif line and not line.startswith("#"):
            if name is None:
                raise UserError(f"{path}: a skill stands before the first [section]: {line}")
            sections[name] = f"{sections[name]} {line}".strip()
    return sections
