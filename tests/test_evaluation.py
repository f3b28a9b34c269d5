"""seed/evaluation.py: intervals and tests against published or exhaustively computed values, and summaries by hand."""
import math
import random

import pytest
from fakes import trajectory

from seed.evaluation import compare, sign_test, spread, summarise, wilson


def test_wilson_against_the_formula_solved_numerically():
    # The interval's ends are the rates p at which the observed share is z standard errors away.
    for wins, games in [(84, 100), (0, 20), (20, 20), (1, 8), (108, 128)]:
        for p in wilson(wins, games):
            if 0 < p < 1:
                assert abs(wins / games - p) == pytest.approx(1.959964 * math.sqrt(p * (1 - p) / games), abs=1e-9)
    low, high = wilson(108, 128)
    assert (round(low, 2), round(high, 2)) == (0.77, 0.9)


def test_wilson_holds_the_rate_it_is_about():
    for games in range(1, 400):
        for wins in (0, games // 3, games):
            low, high = wilson(wins, games)
            assert 0 <= low <= wins / games <= high <= 1


def test_repeats_do_not_narrow_the_interval():
    once = summarise([trajectory(success=bool(i % 3), description=str(i)) for i in range(3)])
    ts = [trajectory(success=bool(i), copy=i) for i in range(2)]
    s = summarise(ts)
    assert (s["wins"], s["games"]) == (1, 2) and (s["low"], s["high"]) == wilson(0.5, 1) and once["games"] == 3


def test_wilson_covers_about_95_percent():
    rng = random.Random(0)
    hits = 0
    for _ in range(4000):
        low, high = wilson(sum(rng.random() < 0.3 for _ in range(100)), 100)
        hits += low <= 0.3 <= high
    assert 0.935 < hits / 4000 < 0.97


def test_sign_test_by_hand():
    assert sign_test(1, 9) == pytest.approx(2 * (1 + 10) / 1024)
    assert sign_test(9, 1) == sign_test(1, 9) and sign_test(0, 0) == 1.0 and sign_test(2, 2) == 1.0


def outcomes(values):
    return {"outcomes": {f"game {i}": v for i, v in enumerate(values)}}


def test_comparison_is_paired():
    a = outcomes([[0]] * 10 + [[1]] * 10)
    b = outcomes([[1]] * 8 + [[0]] * 2 + [[1]] * 10)     # eight games better, none worse
    result = compare(a, b)
    assert result["difference"] == pytest.approx(0.4) and (result["better"], result["worse"]) == (8, 0)
    assert result["mcnemar_p"] == pytest.approx(2 / 256) and 0.15 < result["low"] < 0.4 < result["high"] < 0.65
    assert compare(b, a)["difference"] == pytest.approx(-0.4)
    assert compare(a, a)["difference"] == 0 and compare(a, a)["mcnemar_p"] == 1.0


def test_bootstrap_interval_is_that_of_the_mean():
    rng = random.Random(3)
    a = outcomes([[0]] * 400)
    b = outcomes([[int(rng.random() < 0.3)] for _ in range(400)])
    result = compare(a, b)
    p = result["difference"]
    half = 1.96 * math.sqrt(p * (1 - p) / 400)
    assert result["low"] == pytest.approx(p - half, abs=0.004) and result["high"] == pytest.approx(p + half, abs=0.004)


def test_repeats_are_averaged_within_a_game():
    result = compare(outcomes([[0, 0, 1], [1, 1, 1]]), outcomes([[1, 1, 1], [0, 1, 1]]))
    assert result["difference"] == pytest.approx((2 / 3 - 1 / 3) / 2) and (result["better"], result["worse"]) == (1, 1)


def test_other_games_are_refused():
    with pytest.raises(ValueError, match="same games"):
        compare(outcomes([[0]]), outcomes([[0], [1]]))


def test_summary_by_hand():
    ts = [trajectory(steps=2, success=True), trajectory(steps=4, success=False, copy=1)]
    ts[1].steps[0].valid = False
    ts[1].steps[1].admissible = ts[1].steps[2].admissible = False
    s = summarise(ts)
    assert (s["wins"], s["games"], s["success"], s["mean_turns"]) == (1, 2, 0.5, 3.0)
    assert s["malformed"] == pytest.approx(1 / 6) and s["inadmissible"] == pytest.approx(2 / 6)
    assert s["outcomes"] == {ts[0].task.id: [1, 0]} and s["by_type"]["pick_and_place_simple"]["wins"] == 1
    assert summarise([])["games"] == 0


def test_fewer_games_are_spread_over_the_list():
    assert spread(list(range(200)), 4) == [0, 50, 100, 150] and spread([1, 2], None) == spread([1, 2], 5) == [1, 2]
    assert spread(list(range(140)), 128) == sorted(set(spread(list(range(140)), 128)))
