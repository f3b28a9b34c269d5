"""seed/rollout.py: lock step, slots, histories, crashes; and that ids are never made from text."""
import pytest
from fakes import random_policy

from seed.envs.base import GameError, Turn
from seed.rollout import rollout
from seed.sampling import Reply
from seed.trajectory import Task

OPTIONS = dict(max_turns=6, history_length=2, temperature=1.0, max_prompt_tokens=2048, max_reply_tokens=10, batch_tokens=10_000)
TASKS = [Task("alfworld", f"game {i}", "look_at_obj_in_light") for i in range(5)]


class Countdown:
    """Won after `5 - number of the game` times `look`; anything else changes nothing. Game 3 may not open or may crash."""
    name = "alfworld"

    def __init__(self, slots=4, broken=None):
        self.slots, self.broken, self.left, self.ids = slots, broken, {}, {}

    def reset(self, slot, task):
        if self.broken == "reset" and task.id == "game 3":
            raise GameError("game 3: cannot be opened")
        assert slot in range(self.slots)
        self.left[slot], self.ids[slot] = 5 - int(task.id.split()[1]), task.id
        return Turn(f"{self.left[slot]} to go", ("look", "wait"), description="count down.")

    def step(self, slot, action):
        if self.broken == "step" and self.ids[slot] == "game 3" and self.left[slot] == 1:
            raise GameError("game 3: crashed")
        self.left[slot] -= action == "look"
        done = self.left[slot] == 0
        return Turn(f"{self.left[slot]} to go", ("look", "wait"), 10.0 * done, done, done)


@pytest.fixture
def policy(monkeypatch):
    """Samples real replies of a policy with random weights, then replaces every second one by a well-formed `look`."""
    from seed import rollout as module
    policy, sample = random_policy(), module.sample
    look = policy.tokenizer.encode("<think>look</think><action>look</action>") + [policy.tokenizer.eos_token_id]

    def mixed(policy, prompts, streams, *rest):
        chosen = [stream.random() < 0.7 for stream in streams]
        return [Reply(look, [-0.5] * len(look), True) if c else r for c, r in zip(chosen, sample(policy, prompts, streams, *rest))]
    monkeypatch.setattr(module, "sample", mixed)
    return policy


def play(policy, env, copies=2, seed="s", **options):
    episodes = [(task, g, c) for g, task in enumerate(TASKS) for c in range(copies)]
    trajectories, crashed = rollout(policy, env, episodes, seed, **{**OPTIONS, **options})
    return trajectories, crashed


def test_every_episode_is_played_once_in_order(policy):
    trajectories, crashed = play(policy, Countdown())
    assert [(t.group, t.copy, t.task.id) for t in trajectories] == [(g, c, f"game {g}") for g in range(5) for c in range(2)]
    assert crashed == [] and {t.success for t in trajectories} == {True, False}
    for t in trajectories:
        assert len(t.steps) == 6 or t.success
        assert t.success == (t.steps[-1].reward == 10.0) and t.reward == 10.0 * t.success
        assert t.task.description == "count down."


@pytest.mark.parametrize("slots", [1, 3, 50])
@pytest.mark.parametrize("batch_tokens", [300, 10_000])
def test_outcomes_do_not_depend_on_slots_and_batches(policy, slots, batch_tokens):
    a, _ = play(policy, Countdown())
    b, _ = play(policy, Countdown(slots), batch_tokens=batch_tokens)
    assert [[s.action_ids for s in t.steps] for t in a] == [[s.action_ids for s in t.steps] for t in b]


def test_seeds_and_copies_differ(policy):
    a, _ = play(policy, Countdown())
    assert a == play(policy, Countdown())[0]
    ids = lambda t: [s.action_ids for s in t.steps]
    assert [ids(t) for t in a] != [ids(t) for t in play(policy, Countdown(), seed="other")[0]] and ids(a[0]) != ids(a[1])


def test_contexts_hold_the_last_steps_and_no_skill(policy):
    for t in play(policy, Countdown())[0]:
        for k, step in enumerate(t.steps):
            expected = tuple((s.context.observation, s.action) for s in t.steps[max(0, k - 2):k])
            assert step.context.history == expected and step.context.step == k + 1 and step.context.skill is None
            assert step.prompt_ids == policy.encode_context(step.context)
            assert k == 0 or step.context.observation == t.steps[k - 1].observation_after


def test_history_that_does_not_fit_is_left_out_oldest_first(policy):
    first = play(policy, Countdown())[0][0].steps
    most = len(first[0].prompt_ids) + 26
    seen = set()
    for t in play(policy, Countdown(), max_prompt_tokens=most)[0]:
        for k, step in enumerate(t.steps):
            pairs = [(s.context.observation, s.action) for s in t.steps[:k]][-2:]
            shown = len(step.context.history)
            seen.add((min(k, 2), shown))
            assert step.context.history == tuple(pairs[len(pairs) - shown:])
            assert len(step.prompt_ids) <= most or shown == 0
    assert any(shown < there for there, shown in seen)


def test_a_game_that_cannot_be_opened_is_left_out_by_name(policy):
    trajectories, crashed = play(policy, Countdown(broken="reset"))
    assert crashed == ["game 3: cannot be opened"] * 2 and {t.task.id for t in trajectories} == {f"game {i}" for i in (0, 1, 2, 4)}


def test_a_game_that_crashes_is_left_out_and_the_rest_is_untouched(policy):
    whole, _ = play(policy, Countdown())
    trajectories, crashed = play(policy, Countdown(broken="step"))
    assert crashed and set(crashed) == {"game 3: crashed"}
    # Batches have other shapes then, so log-probs may differ in the last bit; what is sampled does not.
    record = lambda ts: [(t.task.id, t.copy, [(s.prompt_ids, s.action_ids, s.action, s.observation_after) for s in t.steps]) for t in ts if t.group != 3]
    logprobs = lambda ts: [x for t in ts if t.group != 3 for s in t.steps for x in s.logprobs]
    assert record(whole) == record(trajectories) and logprobs(whole) == pytest.approx(logprobs(trajectories), abs=1e-4)


def test_nothing_encodes_a_decoded_action(policy, monkeypatch):
    """Replies whose text would be encoded differently keep their own ids."""
    from seed import rollout as module
    tok = policy.tokenizer
    odd = [tok.convert_tokens_to_ids(c) for c in "look"] + [tok.eos_token_id]       # letter by letter
    assert None not in odd and tok.encode("look") != odd[:-1]
    monkeypatch.setattr(module, "sample", lambda policy, prompts, streams, *rest: [Reply(odd, [-1.0] * len(odd), True)] * len(prompts))
    encoded = []
    template = type(tok).apply_chat_template
    monkeypatch.setattr(type(tok), "encode", lambda *a, **k: pytest.fail("an action's text was encoded"))
    monkeypatch.setattr(type(tok), "apply_chat_template", lambda self, m, **k: encoded.append(m) or template(self, m, **k))
    trajectories, _ = play(policy, Countdown())
    assert all(s.action_ids == odd and s.text == "look" for t in trajectories for s in t.steps)
    assert all([m["role"] for m in messages] == ["user"] for messages in encoded)      # prompts, and nothing else
