"""results/: the scripts that make tables and figures, on made-up records (the real runs take hours)."""
import json
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "results"))
import experiment
import run_table
from experiment import SEEN, UNSEEN, Run


def record(run: Run, wins: int, updates: int = 4) -> dict:
    """What `experiment.do` writes, of a run that nobody made: it wins the first games of each list."""
    from seed.evaluation import wilson
    method = run.arguments()[run.arguments().index("--method") + 1]
    kinds = ("pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep", "pick_heat_then_place_in_recep",
             "pick_cool_then_place_in_recep", "pick_two_obj_and_place")
    low, high = wilson(wins, 20)
    evaluation = lambda state, split, skills: {
        "state": state, "update": updates * (state == "last"), "split": split, "with_skills": skills, "wins": wins, "games": 20, "success": wins / 20,
        "low": low, "high": high, "mean_turns": 9.0, "outcomes": "1" * wins + "0" * (20 - wins), "by_type": {kind: {"success": wins / 20} for kind in kinds}}
    acts = run_table.METHODS[method].acts_with
    return {"name": run.name, "method": method, "seed": run.seed, "config_hash": run.digest(), "commit": "abc",
            "evaluations": [evaluation(state, split, skills) for state in ("start", "last") for split in (SEEN, UNSEEN) for skills in [False, True][:1 + bool(acts)]],
            "during": [{"update": u, "split": SEEN, "success": wins / 20, "low": low, "high": high} for u in (0, updates)],
            "metrics": {name: [u * wins / 20 for u in range(updates)] for name in experiment.CURVES}}


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(experiment, "RECORDS", tmp_path / "results" / "runs")
    monkeypatch.setattr(run_table, "ROOT", tmp_path)
    import figures
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    experiment.RECORDS.mkdir()

    def write(name, seed, wins):
        run = run_table.RUNS[name][seed]
        (experiment.RECORDS / f"{run.stem()}.json").write_text(json.dumps(record(run, wins)))
    return write


def test_the_table_has_what_there_is_with_paired_differences(made_up, tmp_path, capsys):
    for seed, (grpo, seed_) in enumerate([(8, 10), (10, 11), (9, 12)]):
        made_up("grpo", seed, grpo)
        made_up("seed", seed, seed_)
    made_up("skill-grpo", 0, 7)
    made_up("skill-prompt", 0, 5)
    run_table.summarise()
    table = json.loads((tmp_path / "results" / "table.json").read_text())["rows"]
    assert set(table) == {"grpo", "seed", "skill-grpo", "skill-grpo*", "skill-prompt*"}
    row = table["seed"][UNSEEN]
    assert [run["wins"] for run in row["runs"]] == [10, 11, 12] and row["success"]["mean"] == pytest.approx(0.55)
    # Differences 0.1, 0.05, 0.15: mean 0.1, sd 0.05, t = 4.303: half-width 4.303 * 0.05 / sqrt(3)
    assert row["minus_grpo"]["mean"] == pytest.approx(0.1) and row["minus_grpo"]["high"] - 0.1 == pytest.approx(4.303 * 0.05 / 3 ** 0.5, abs=1e-6)
    assert [p["better"] for p in row["paired"]] == [2, 1, 3] and table["grpo"][SEEN]["minus_grpo"] is None
    assert "| seed | 3 | 50.0 55.0 60.0 | 55.0 [42.6, 67.4] | 10.0 [-2.4, 22.4] |" in (out := capsys.readouterr().out)
    # A record's curves rise by the share that its games are won by: (0 + 1 + 2 + 3) / 4 times 0.5, 0.55, 0.6 for seed.
    assert table["seed"]["training"]["success"]["values"] == pytest.approx([0.75, 0.825, 0.9])
    assert table["seed"]["training"]["minus_grpo"]["values"] == pytest.approx([0.15, 0.075, 0.225]) and table["grpo"]["training"]["minus_grpo"] is None
    assert "| 82.5 [63.9, 101.1] | 15.0 [-3.6, 33.6] |" in out
    assert all((tmp_path / "results" / f"figure{n}.png").stat().st_size > 1000 for n in (3, 4, 5, 9))


def test_grpo_and_seed_alone(made_up, tmp_path, monkeypatch, capsys):
    import tiny
    monkeypatch.setattr(tiny, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["tiny.py"])
    for seed, (grpo, seed_) in enumerate([(8, 10), (10, 11), (9, 12)]):
        made_up("grpo", seed, grpo)
        made_up("seed", seed, seed_)
    tiny.main()
    summary, text = json.loads((tmp_path / "results" / "alfworld_tiny.json").read_text()), capsys.readouterr().out
    assert [(run["method"], run["seed"]) for run in summary["runs"]] == [(m, s) for s in range(3) for m in ("grpo", "seed")]
    assert summary["comparison"][UNSEEN]["seed_minus_grpo"]["mean"] == pytest.approx(0.1) and summary["comparison"][SEEN]["grpo"]["values"] == [0.4, 0.5, 0.45]
    assert text.count("NOT apart") == 12 and "valid_unseen: SEED minus GRPO +10.0% [-2.4%, +22.4%] over 3 seeds" in text
    assert (tmp_path / "results" / "alfworld_tiny.png").stat().st_size > 1000


def test_runs_that_are_remembered_are_not_repeated(made_up, monkeypatch, capsys):
    made_up("grpo", 0, 8)
    made_up("seed", 0, 8)
    monkeypatch.setattr(experiment, "call", lambda *a: pytest.fail("a run was started"))
    experiment.do_all([run_table.RUNS["grpo"][0], run_table.RUNS["seed"][0]])
    assert "2 runs, 0 to do" in capsys.readouterr().err


def test_every_run_of_the_table_is_a_configuration_of_its_own():
    digests = [run.digest() for runs in run_table.RUNS.values() for run in runs]
    assert len(set(digests)) == len(digests) > 60
    assert Run("x", 0, ("--method", "seed")).digest() != Run("x", 1, ("--method", "seed")).digest()
