"""The actor's prompt and how its reply is read.

In the paper: Figure 11. Its variables are the task description, the number of steps taken, the history length, the
history of actions, the current step, the current observation and the admissible actions; the reply reasons inside
<think> </think> and then gives one admissible action inside <action> </action>. The wording is our own.

How it differs from the paper's code:
1. The task stands in the prompt from the first step on, in a line of its own (the original's first prompt leaves it to the
   first observation), so that a skill always has the same place: right after the task, inside the user turn.
2. A reply is well formed only if the tags come in order: think closed before the action opens, action closed after it
   opened. The original pairs the first <action> with the first </action> wherever they stand, even reversed.
3. Besides the malformed replies, inadmissible actions are counted; the original never reads its list.
"""
import re
from dataclasses import dataclass

from seed.trajectory import Context

HEAD = {"alfworld": "You are an agent who acts in a simulated household to carry out a task.\nYour task is to: "}
SKILL = "\nA skill for this task, to act by: "
TAKEN = "\nSteps taken so far: "
SHOWN = ". The most recent observations and the actions taken on them, their number being "
CURRENT = "\nYou are now at step "
OBSERVE = " and your current observation is: "
ADMISSIBLE = "\nYour admissible actions are: ["
INSTRUCTION = ("]\nFirst reason step by step about the situation, inside <think> </think> tags. Then choose one admissible "
               "action and give it inside <action> </action> tags.")
FIXED = (*HEAD.values(), SKILL, TAKEN, SHOWN, CURRENT, OBSERVE, ADMISSIBLE, INSTRUCTION)  # the tiny tokenizer's long tokens
ACTION, ACTION_END = (re.compile(tag, re.IGNORECASE | re.ASCII) for tag in ("<action>", "</action>"))
FALLBACK_CHARACTERS = 30  # of a reply without an action block, so many from its end are passed on


def render(context: Context) -> str:
    """The user turn for h_t, or for h~_t = H(h_t, s) where the context has a skill: the same text plus `skill_section`.

    The first step has no history. Step numbers count from 1; `history` holds the steps right before this one.
    """
    parts = [HEAD[context.task.env], context.task.description, skill_section(context.skill)]
    if context.history:
        first = context.step - len(context.history)
        shown = [f"[Observation {first + i}: '{observation}', Action {first + i}: '{action}']"
                 for i, (observation, action) in enumerate(context.history)]
        parts += [TAKEN, str(context.step - 1), SHOWN, str(len(shown)), ":\n", "\n".join(shown)]
    parts += [CURRENT, str(context.step), OBSERVE, context.observation,
              ADMISSIBLE, "\n ".join(f"'{action}'" for action in context.admissible), INSTRUCTION]
    return "".join(parts)


def skill_section(skill: str | None) -> str:
    return f"{SKILL}{skill}" if skill is not None else ""


@dataclass(frozen=True)
class Reply:
    action: str        # what to pass to the environment
    valid: bool        # well formed; otherwise the step pays the invalid-action penalty
    admissible: bool   # one of the offered actions; otherwise the game stays as it is


def parse_reply(text: str, admissible: tuple[str, ...]) -> Reply:
    """Read a reply. Never raises: a reply without an action passes on its last 30 characters, which do nothing.

    >>> parse_reply("<think>It is dark.</think><action>Look</action>", ("look",))
    Reply(action='look', valid=True, admissible=True)
    >>> parse_reply("I would look.", ("look",)).valid
    False
    """
    opened = ACTION.search(text)
    closed = ACTION_END.search(text, opened.end() if opened else 0)
    if not opened or not closed:
        action, in_order = text[-FALLBACK_CHARACTERS:].lower().strip(), False
    else:
        action = text[opened.end():closed.start()].lower().strip()
        in_order = (0 <= text.find("<think>") < text.find("</think>") < opened.start()
                    and not ACTION_END.search(text, 0, opened.start()) and not ACTION.search(action))
    # The original's guard against drifting into another language.
    chinese = any("\u4e00" <= character <= "\u9fff" for character in text)
    return Reply(action, in_order and not chinese, action in admissible)
