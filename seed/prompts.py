"""The actor's prompt.

In the paper: Figure 11. Its variables are the task description, the number of steps taken, the history length, the
history of actions, the current step, the current observation and the admissible actions; the reply reasons inside
<think> </think> and then gives one admissible action inside <action> </action>. The wording is our own. What differs between
environments, the form of the reply included, is in their `WORDS` (`seed/envs/base.py`).

How it differs from the paper's code:
1. The task stands in the prompt from the first step on, in a line of its own (the original's first prompt leaves it to the
   first observation), so that a skill always has the same place: right after the task, inside the user turn.
"""
from seed.envs import words
from seed.trajectory import Context

SKILL = "\nA skill for this task, to act by: "
TAKEN = "\nSteps taken so far: "
SHOWN = ". The most recent observations and the actions taken on them, their number being "
CURRENT = "\nYou are now at step "
OBSERVE = " and your current observation is: "


def fixed(env: str) -> tuple[str, ...]:
    """The sentences that never change: the tiny tokenizer's long tokens."""
    own = words(env)
    return own.head, SKILL, TAKEN, SHOWN, CURRENT, OBSERVE, own.offer, own.instruction


def render(context: Context) -> str:
    """The user turn for h_t, or for h~_t = H(h_t, s) where the context has a skill: the same text plus `skill_section`.

    The first step has no history. Step numbers count from 1; `history` holds the steps right before this one.
    """
    own = words(context.task.env)
    parts = [own.head, context.task.description, skill_section(context.skill)]
    if context.history:
        first = context.step - len(context.history)
        shown = [f"[Observation {first + i}: '{observation}', Action {first + i}: '{action}']"
                 for i, (observation, action) in enumerate(context.history)]
        parts += [TAKEN, str(context.step - 1), SHOWN, str(len(shown)), ":\n", "\n".join(shown)]
    parts += [CURRENT, str(context.step), OBSERVE, context.observation]
    if own.offer:
        parts += [own.offer, "\n ".join(f"'{action}'" for action in context.admissible)]
    return "".join(parts) + own.instruction


def skill_section(skill: str | None) -> str:
    return f"{SKILL}{skill}" if skill is not None else ""
