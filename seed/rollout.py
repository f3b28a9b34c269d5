"""Playing episodes: many at once, in lock step.

In the paper: pi_old collects, for each task q, a group of N trajectories (Stage 2). All episodes that are still running
take their next step together, so one batch of prompts serves them all; one whose game is over leaves its slot to the
next. The order of episodes, slots and batches has no influence on what is played: every reply has a random stream named by
seed, task, copy and step.
"""
import random
from dataclasses import dataclass, replace

from tqdm import tqdm

from seed.augment import H
from seed.envs import words
from seed.envs.base import Environment, GameError, Turn
from seed.sampling import sample
from seed.trajectory import Context, Step, Task, Trajectory


@dataclass
class Running:
    """An episode in its slot."""
    trajectory: Trajectory
    slot: int
    turn: Turn


def rollout(policy, env: Environment, episodes: list[tuple[Task, int, int]], seed: str, *, max_turns: int,
            history_length: int, temperature: float, max_prompt_tokens: int, max_reply_tokens: int, batch_tokens: int,
            library=None, title: str = "playing") -> tuple[list[Trajectory], list[str]]:
    """Play `episodes`, each a (task, group, copy). Returns their trajectories in order, and what crashed (left out).

    `library`: a `seed.library.Library` whose skill for the task stands in every context; None: the plain policy plays.
    """
    waiting = [Trajectory(task, group, copy) for task, group, copy in episodes][::-1]
    finished, crashed, running = {}, [], []
    free = list(range(env.slots))
    bar = tqdm(total=len(episodes), desc=title, unit="episode", leave=False, disable=None)

    def close(episode):
        running.remove(episode)
        free.append(episode.slot)
        bar.update()

    while waiting or running:
        while waiting and free:
            trajectory, slot = waiting.pop(), free.pop()
            try:
                turn = env.reset(slot, trajectory.task)
            except GameError as error:
                crashed.append(str(error))
                free.append(slot)
                bar.update()
                continue
            trajectory.task = replace(trajectory.task, description=turn.description)
            running.append(Running(trajectory, slot, turn))

        contexts, prompts = [], []
        for episode in running:
            context, ids = _context(policy, episode, history_length, max_prompt_tokens, library)
            contexts.append(context)
            prompts.append(ids)
        streams = [random.Random(f"{seed} {e.trajectory.task.id} {e.trajectory.copy} {len(e.trajectory.steps)}")
                   for e in running]
        replies = sample(policy, prompts, streams, max_reply_tokens, temperature, batch_tokens)

        for episode, context, prompt_ids, reply in zip(list(running), contexts, prompts, replies):
            text = policy.decode(reply.action_ids)
            parsed = words(env.name).read(text, context.admissible)
            try:
                turn = env.step(episode.slot, parsed.action)
            except GameError as error:
                crashed.append(str(error))
                close(episode)
                continue
            trajectory = episode.trajectory
            trajectory.steps.append(Step(context, prompt_ids, reply.action_ids, reply.logprobs, text, parsed.action,
                                         parsed.valid, parsed.admissible, reply.ended, turn.reward, turn.observation))
            episode.turn = turn
            if turn.done or len(trajectory.steps) == max_turns:
                trajectory.success, trajectory.score = turn.won, turn.score
                finished[trajectory.group, trajectory.copy, trajectory.task.id] = trajectory
                close(episode)
    bar.close()
    keys = [(group, copy, task.id) for task, group, copy in episodes]
    return [finished[key] for key in keys if key in finished], crashed


def _context(policy, episode, history_length, max_prompt_tokens, library):
    """The context of the next step with its prompt; history that does not fit the prompt is left out, oldest first."""
    skill = library and library.skill(episode.trajectory.task)
    steps = episode.trajectory.steps
    history = tuple((s.context.observation, s.action) for s in steps[max(0, len(steps) - history_length):])
    while True:
        context = Context(episode.trajectory.task, history, episode.turn.observation, episode.turn.admissible,
                          step=len(steps) + 1, images=episode.turn.images)
        context = H(context, skill) if skill else context
        ids = policy.encode_context(context)
        if len(ids) <= max_prompt_tokens or not history:
            return context, ids
        history = history[1:]
