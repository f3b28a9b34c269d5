"""H(h, s): the context with a hindsight skill.

In the paper: the deterministic context augmentation that turns a history h_t into h~_t = H(h_t, s). It inserts the skill
next to the task description and changes nothing else. Both hold by construction: a context is its parts, H sets one of
them, and rendering (`seed/prompts.py`) writes the skill's section right behind the task, inside the user turn, where no
chat template and no truncation can lose it:

    You are an agent ... Your task is to: put a mug in shelf.
    A skill for this task, to act by: Find mug in desk 1, take it, put it in shelf.      <- in h~ alone
    You are now at step 1 and your current observation is: ...

So the teacher's prompt is longer by the skill; it may pass --max-prompt-tokens, which shortens the history that h shows and
nothing else.
"""
from dataclasses import replace

from seed.trajectory import Context


def H(context: Context, skill: str) -> Context:
    """h~ = H(h, s). A skill must have text: an empty one would make teacher and student the same, silently.

    >>> from seed.trajectory import Task
    >>> h = Context(Task("alfworld", "a", "look"), (), "You see a desk 1.", ("look",), step=1)
    >>> H(h, "Look first.").skill, H(h, "Look first.").observation == h.observation
    ('Look first.', True)
    """
    if not skill.strip():
        raise ValueError("H needs a skill with text; a trajectory without a usable skill has no teacher")
    return replace(context, skill=skill)
