"""seed/metrics.py: numbers by hand, and the checks that stop a run."""
import math

import pytest
import torch
from fakes import trajectory

from seed.errors import UserError
from seed.metrics import Meter, check_replies, check_sampling, check_skills, compare_gradients, update_metrics, warnings


def test_distillation_numbers_by_hand():
    meter = Meter()
    meter.add_distillation(torch.tensor([1.0, -1.0]), torch.tensor([0.9, 0.1]))
    meter.add_distillation(torch.tensor([3.0]), torch.tensor([0.8]))
    meter.add("tokens", 6)
    meter.add("opd_loss", 1.5)
    meter.add("first_tokens", 2)
    meter.add("sampling_gap", 0.5)
    ts = [trajectory(success=True), trajectory(success=False, copy=1)]
    ts[0].skill, ts[1].skill_error = "Look.", "cut off"
    m = update_metrics(meter, ts, [[1, 2, 3], [4]], ["game 3: crashed"], has_teacher=True)
    assert m["delta_mean"] == pytest.approx(1.0) and m["delta_abs"] == pytest.approx(5 / 3)
    assert m["delta_std"] == pytest.approx(math.sqrt(11 / 3 - 1)) and m["gate_mean"] == pytest.approx(0.6)
    assert m["gate_open"] == pytest.approx(2 / 3) and m["taught_tokens"] == 0.5 and m["opd_loss"] == m["sampling_gap"] == 0.25
    assert m["skill_valid"] == 0.5 and m["skill_errors"] == {"cut off": 1} and m["skill_tokens"] == 2 and m["crashed"] == 1
    assert m["success"] == 0.5 and m["equal_groups"] == 0.0 and m["turns"] == 3


def test_equal_groups():
    meter = Meter()
    meter.add("tokens", 1)
    meter.add("first_tokens", 1)
    ts = [trajectory(success=s, group=g, copy=c) for g, members in enumerate([(1, 1), (0, 0), (0, 1), (1, 0)]) for c, s in enumerate(members)]
    assert update_metrics(meter, ts, [], [], has_teacher=False)["equal_groups"] == 0.5


def test_gradient_ratio_and_cosine_by_hand():
    p = torch.nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3.0, 4.0]) + torch.tensor([0.0, 1.0])      # L_rl's gradient plus lambda times L_opd's
    ratio, cosine = compare_gradients([p], [torch.tensor([0.0, 1.0])])
    assert ratio == pytest.approx(0.2) and cosine == pytest.approx(0.8)
    p.grad = torch.zeros(2)
    assert compare_gradients([p], [torch.zeros(2)]) == (0.0, 0.0)


def test_replies_that_never_end_stop_the_first_update():
    ts = [trajectory()]
    for step in ts[0].steps:
        step.ended = False
    with pytest.raises(UserError, match="no reply of the first update ended"):
        check_replies(ts, 0)
    check_replies(ts, 1)
    ts[0].steps[0].ended = True
    check_replies(ts, 0)


def test_what_was_not_measured_is_null():
    meter = Meter()
    meter.add("tokens", 4)
    meter.add("first_tokens", 4)
    m = update_metrics(meter, [trajectory()], [], [], has_teacher=True)
    assert m["gate_mean"] is None and m["delta_std"] is None and m["kl"] is None and m["entropy"] == 0


def test_a_method_without_its_teacher_stops():
    t = trajectory()
    t.skill_error = "cut off"
    with pytest.raises(UserError, match="none of the 1 analyses .*cut off.*--method grpo"):
        check_skills([t], 0)
    check_skills([t], 1)
    t.taught = t.skill = "Look."
    check_skills([t], 0)


def test_scores_that_differ_from_sampling_stop():
    with pytest.raises(UserError, match="differ from those recorded while sampling by 0.05"):
        check_sampling({"update": 1, "sampling_gap": 0.05}, "float32")
    check_sampling({"update": 1, "sampling_gap": 0.05}, "bfloat16")
    check_sampling({"update": 1, "sampling_gap": 1e-5}, "float32")


def test_warnings():
    healthy = {"grad_norm": 0.1, "entropy": 0.5, "malformed": 0.0, "ended": 1.0, "equal_groups": 0.3, "skill_valid": 1.0}
    assert warnings(healthy) == []
    for change in ({"entropy": 0.001}, {"malformed": 0.9}, {"ended": 0.1}, {"equal_groups": 1}, {"skill_valid": 0}, {"grad_norm": 99}):
        assert len(warnings({**healthy, **change})) == 1
