"""Tasks, contexts, steps and trajectories: the data that every other file passes on.

In the paper (the setting, a POMDP): a trajectory tau = {(o_t, a_t, r_t)}, t = 0..T-1, with the history
h_t = (o_0, a_0, ..., o_t) and one outcome R(tau). Here h_t is a `Context`: not a string but its parts, so that the
context with a skill, h~ = H(h, s), is the same object with one field set (`seed/augment.py`). An action a_t is the whole
reply of one turn, and `Step.action_ids` is the token sequence a_{t,1..L} that was sampled: the record from which
everything is scored. Text is derived from it; what is scored is never made from text.

A trajectory is one line of JSON (`to_json`, `from_json`), readable without this code. Prompt token ids are not written:
they follow from the context (`Policy.encode_context`), and a test holds the two together.
"""
import base64
import hashlib
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Task:
    """One task q. `id` is the same on every machine (for ALFWorld the game's path relative to the data folder)."""
    env: str
    id: str
    type: str               # results are split by it
    description: str = ""   # empty until the game is opened: it is part of the game's first observation
    seed: int = 0


@dataclass(frozen=True)
class Context:
    """The decision context h_t. `history` holds the last observations and the actions taken on them, oldest first."""
    task: Task
    history: tuple[tuple[str, str], ...]
    observation: str
    admissible: tuple[str, ...]
    step: int                    # the number of this step, from 1
    images: tuple = ()           # what the agent sees now, as Pillow images (seed/vision.py)
    skill: str | None = None     # set by H alone, never while acting with the plain policy


@dataclass
class Step:
    context: Context
    prompt_ids: list[int]
    action_ids: list[int]        # as sampled, up to and with the end-of-turn token
    logprobs: list[float]        # log pi_old(a_l | h, a_<l), recorded while sampling
    text: str                    # action_ids decoded
    action: str                  # what was passed to the environment
    valid: bool                  # the reply has the form that the prompt asks for
    admissible: bool             # the action is one of those that the environment offered
    ended: bool                  # the reply ended by itself, not at the token limit
    reward: float                # the environment's reward r_t, before any penalty
    observation_after: str


@dataclass
class Trajectory:
    task: Task
    group: int                   # which group of the update it belongs to; members share the task
    copy: int                    # its number among the episodes of its task: with seed and task it names the random stream
    steps: list[Step] = field(default_factory=list)
    success: bool = False
    score: float | None = None   # how well the task was done, 0 to 1, where the environment says more than success
    skill: str | None = None     # the hindsight skill s, or None with the reason in skill_error
    summary: str | None = None
    skill_error: str | None = None
    taught: str | None = None    # the skill that its teacher saw: its own, or a library's; None: no teacher

    @property
    def reward(self) -> float:
        """R(tau): the sum of the environment's rewards, without penalties."""
        return sum(step.reward for step in self.steps)

    def to_json(self, **extra) -> str:
        """One line. `extra` (the update's number, say) is written in front and ignored when read back."""
        steps = [{"observation": s.context.observation, "admissible": s.context.admissible, "text": s.text,
                  "action": s.action, "valid": s.valid, "is_admissible": s.admissible, "ended": s.ended,
                  "reward": s.reward, "observation_after": s.observation_after,
                  "history_shown": len(s.context.history), "acted_with_skill": s.context.skill,
                  **({"images": [to_png(image) for image in s.context.images]} if s.context.images else {}),
                  "action_ids": s.action_ids, "logprobs": [round(x, 6) for x in s.logprobs]} for s in self.steps]
        return json.dumps({**extra, "task": asdict(self.task), "group": self.group, "copy": self.copy,
                           "reward": self.reward, "success": self.success, "score": self.score, "summary": self.summary,
                           "skill": self.skill, "skill_error": self.skill_error, "taught": self.taught, "steps": steps}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> "Trajectory":
        """Inverse of `to_json`, except that prompt_ids are empty and log-probs rounded to six decimals."""
        data = json.loads(line)
        task = Task(**data["task"])
        trajectory = cls(task, data["group"], data["copy"], success=data["success"], score=data["score"], skill=data["skill"],
                         summary=data["summary"], skill_error=data["skill_error"], taught=data["taught"])
        pairs = [(s["observation"], s["action"]) for s in data["steps"]]
        for t, s in enumerate(data["steps"]):
            context = Context(task, tuple(pairs[t - s["history_shown"]:t]), s["observation"], tuple(s["admissible"]),
                              step=t + 1, images=tuple(map(from_png, s.get("images", ()))), skill=s["acted_with_skill"])
            trajectory.steps.append(Step(context, [], s["action_ids"], s["logprobs"], s["text"], s["action"], s["valid"],
                                         s["is_admissible"], s["ended"], s["reward"], s["observation_after"]))
        return trajectory


def to_png(image) -> str:
    """A picture as text (a PNG file in base64), without loss."""
    data = io.BytesIO()
    image.save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def from_png(text: str):
    from PIL import Image
    image = Image.open(io.BytesIO(base64.b64decode(text)))
    image.load()
    return image


def read_trajectories(path: Path) -> list[Trajectory]:
    with open(path, encoding="utf-8", newline="\n") as lines:
        return [Trajectory.from_json(line) for line in lines]


def manifest_hash(tasks: list[Task]) -> str:
    """A name for a list of tasks: two runs with the same hash were given the same tasks in the same order."""
    return hashlib.sha256("\n".join(task.id for task in tasks).encode()).hexdigest()[:12]

