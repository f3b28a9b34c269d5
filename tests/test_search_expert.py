"""seed/envs/search_expert.py: understands every question of the world, answers it, writes skills that can be checked."""
import random

import pytest
from test_search import world  # noqa: F401  a fixture

from seed.envs.search import FORMS, read
from seed.envs.search_expert import WHAT, Goal, Notebook, decide, hindsight, hints, parse_question, slip
from seed.envs.search_world import CHAINS, RELATIONS, make_world, wording
from seed.trajectory import Context, Step, Task, Trajectory


def play(env, task, rng, slips=0.0, hints=(), careless=False, script=None) -> Trajectory:
    """One episode of the expert, `slips` of whose replies are senseless; or of a script of actions."""
    turn = env.reset(0, task)
    trajectory = Trajectory(Task(task.env, task.id, task.type, turn.description), 0, 0)
    book = Notebook(parse_question(turn.description))
    while not turn.done:
        thought, action = slip(book, turn.admissible, rng) if rng.random() < slips else decide(book, turn.admissible, rng, hints, careless)
        action = script.pop(0) if script else action
        text = f"<think>{thought}</think>{action}"
        reply = read(text, turn.admissible)
        assert (reply.action, reply.valid, reply.admissible) == (action, True, True)
        context = Context(trajectory.task, (), turn.observation, turn.admissible, len(trajectory.steps) + 1)
        turn = env.step(0, action)
        book.read(action, turn.observation)
        trajectory.steps.append(Step(context, [], [], [], text, action, True, True, True, turn.reward, turn.observation))
    trajectory.success = turn.won
    return trajectory


def all_tasks(env):
    return [task for split in env.splits() for task in env.tasks(split)]


def test_every_question_is_understood():
    for chain in CHAINS:
        for name in ("Talmer", "Orlan Vex"):
            assert parse_question(wording(chain, name)) == Goal(chain, name, wording(chain, name))
    assert set(WHAT) == set(RELATIONS)
    for text in ("", "Who wrote Hamlet?", "In which town was orlan born?", wording(("birth",), "Orlan Vex") + " And when?"):
        assert parse_question(text) is None


def test_facts_are_read_from_what_was_shown(world):  # noqa: F811
    """Every fact of the notebook stands in a passage of the episode, and the answer is found through them."""
    passages, splits = make_world({"train": 10, "valid_seen": 6, "valid_unseen": 6}, 3)
    answers = {q.text: (q.passages, q.answer) for found in splits.values() for q in found}
    for task in all_tasks(world):
        t = play(world, task, random.Random(0))
        book = Notebook(parse_question(t.task.description))
        assert book.path() == [book.goal.subject]
        for step in t.steps:
            book.read(step.action, step.observation_after)
        assert tuple(book.path()) == (*answers[t.task.description][0], answers[t.task.description][1])
        assert all(thing in passages[name] for (_, name), thing in book.facts.items())


def test_the_expert_answers_everything_in_as_many_searches_as_hops(world):  # noqa: F811
    for task in all_tasks(world):
        t = play(world, task, random.Random(0))
        assert t.success and len(t.steps) == {"one_hop": 2, "two_hop": 3}[task.type], task.id


def test_a_hint_saves_a_search_and_a_wrong_one_does_not_crash(world):  # noqa: F811
    two = [task for task in all_tasks(world) if task.type == "two_hop"]
    for task in two:
        bridge = hints(hindsight(play(world, task, random.Random(0)))[1])
        t = play(world, task, random.Random(0), hints=bridge)
        assert len(bridge) == 1 and t.success and len(t.steps) == 2
        play(world, task, random.Random(0), hints=("Nobody Known",))


def test_carelessness_and_slips_cost(world):  # noqa: F811
    rate = lambda **how: sum(play(world, task, random.Random(f"{task.id} {i}"), **how).success
                             for task in all_tasks(world) for i in range(6)) / (6 * len(all_tasks(world)))
    careless, noisy = rate(careless=True), rate(slips=0.35)
    assert 0.05 < careless < 0.5 and careless < noisy < 0.9


def test_a_success_gives_the_workflow(world):  # noqa: F811
    for task in all_tasks(world):
        t = play(world, task, random.Random(0))
        (summary, skill), (_, plain) = hindsight(t), hindsight(t, name_places=False)
        goal, answer = parse_question(t.task.description), t.steps[-1].action[len("<answer>"):-len("</answer>")]
        assert f"{len(t.steps) - 1} search" in summary and WHAT[goal.chain[-1]] in skill
        assert answer not in skill and goal.subject in skill             # where to look, never what to answer
        assert goal.subject not in plain and hints(plain) == ()
        searched = [step.action[len("<search>"):-len("</search>")] for step in t.steps[:-1]]
        assert hints(skill) == tuple(searched[1:])


@pytest.mark.parametrize("script, summary, advice", [
    (["<answer>Nobody</answer>"], "without a search", "Do not answer before you search."),
    (["<search>{subject}</search>", "<answer>{bridge}</answer>"], "answered {first}, not {last}", "Do not answer {first}."),
    (["<search>{subject}</search>", "<answer>Nobody</answer>"], "before it found {last}", "Do not guess."),
    (["<search>{subject}</search>"] * 3, "before it found {last}", "Do not guess."),
])
def test_a_failure_says_what_to_avoid(world, script, summary, advice):  # noqa: F811
    task = next(task for task in world.tasks("train") if "author-birth" in task.id)
    first = play(world, task, random.Random(0))
    goal = parse_question(first.task.description)
    fill = dict(subject=goal.subject, bridge=hints(hindsight(first)[1])[0], first=WHAT[goal.chain[0]], last=WHAT[goal.chain[1]])
    script = [action.format(**fill) for action in script] + ["<answer>Nobody</answer>"] * (len(script) == 3)
    t = play(world, task, random.Random(0), script=script)
    found = hindsight(t)
    assert not t.success and summary.format(**fill) in found[0] and found[1].endswith(advice.format(**fill))
    assert hindsight(first)[1] in found[1] or "without" in summary       # a failure that saw the bridge names it


def test_an_episode_without_an_answer():
    task = Task("search", "a", "one_hop", wording(("birth",), "Orlan Vex"))
    context = Context(task, (), "", tuple(FORMS.values()), 1)
    t = Trajectory(task, 0, 0, [Step(context, [], [], [], "", "", False, False, True, 0.0, "")])
    assert hindsight(t) == ("The agent made 0 searches and did not answer.",
                            "Search Orlan Vex, answer the town of birth. Answer on the last turn.")
    t.task = Task("search", "a", "nq", "who wrote hamlet?")
    assert hindsight(t) is None
