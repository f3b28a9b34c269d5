"""seed/update.py: where the scores of its rows come from. Whole updates are tested in test_training.py."""
import pytest
import torch

from seed.config import make_config
from seed.evaluation import play_options
from seed.metrics import Meter
from seed.policy import load_policy
from seed.rollout import rollout
from seed.update import Row, objective, rescore_rows

CONFIG = make_config({"preset": "tiny", "method": "seed", "max_turns": 4})


@pytest.fixture
def played(env):
    """(policy, rows in three minibatches) of two short episodes, one of them with a skill."""
    policy = load_policy(CONFIG)
    policy.freeze_reference()
    tasks = env.tasks("train")
    trajectories, _ = rollout(policy, env, [(tasks[0], 0, 0), (tasks[1], 1, 0)], "a seed", **play_options(CONFIG, 1.0))
    trajectories[0].taught = "Look for the mug first."
    rows = [Row(t, step, advantage=1.0) for t in trajectories for step in t.steps]
    assert len(rows) == 8
    return policy, [rows[k::3] for k in range(3)]


def test_old_scores_are_the_recorded_ones_in_float32_and_scored_again_in_half_precision(played):
    policy, minibatches = played
    olds = {}
    for dtype in ("float32", "bfloat16"):  # what is asked of the configuration; the weights are float32 in both
        rescore_rows(make_config({**vars(CONFIG), "lora_rank": 4, "dtype": dtype}), policy, minibatches, 0)
        assert all(row.old is None for row in minibatches[0])
        olds[dtype] = [row.old for rows in minibatches[1:] for row in rows]
    recorded = [torch.tensor(row.step.logprobs) for rows in minibatches[1:] for row in rows]
    for in_float32, in_half, recorded_L in zip(olds["float32"], olds["bfloat16"], recorded, strict=True):
        assert torch.equal(in_float32, recorded_L) and torch.allclose(in_half, recorded_L, atol=1e-5)
    assert not all(map(torch.equal, olds["bfloat16"], recorded))  # ... so the second were scored


def test_the_gap_is_that_of_the_first_step_and_shows_a_wrong_record(played):
    policy, minibatches = played
    rescore_rows(CONFIG, policy, minibatches, 0)
    tokens = sum(len(row.step.action_ids) for row in minibatches[0])
    for shift in (0.0, 0.5):
        meter = Meter()
        for row in minibatches[0]:
            row.step.logprobs = [x + shift for x in row.step.logprobs]
        for rows in minibatches:
            objective(CONFIG, policy, rows, 100, meter)
        assert meter.sums["first_tokens"] == tokens < meter.sums["tokens"]
        assert meter.sums["sampling_gap"] / tokens == pytest.approx(shift, abs=1e-5) and meter.sums["clipped"] == 0


def test_only_taught_rows_have_a_teacher(played):
    policy, minibatches = played
    rescore_rows(CONFIG, policy, minibatches, 0)
    for row in sum(minibatches, []):
        assert (row.teacher is not None) == (row.trajectory.taught is not None) and len(row.reference) == len(row.step.action_ids)
        if row.teacher is not None:
            assert not torch.allclose(row.teacher, row.reference, atol=1e-4)
