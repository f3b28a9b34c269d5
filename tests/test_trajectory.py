"""seed/trajectory.py: one line of JSON each, and back."""
import json

from fakes import trajectory

from seed.trajectory import Task, Trajectory, manifest_hash, read_trajectories


def test_there_and_back(tmp_path):
    t = trajectory(steps=8)
    t.summary, t.skill = "It wörked.", "Go \"there\"\nfirst."
    path = tmp_path / "t.jsonl"
    path.write_text(t.to_json(update=3) + "\n" + trajectory(success=False, copy=1).to_json() + "\n")
    back, other = read_trajectories(path)
    for step in t.steps:
        step.prompt_ids = []
    assert back == t and not other.success and json.loads(path.read_text().splitlines()[0])["update"] == 3


def test_reward_is_the_sum_without_penalties():
    t = trajectory(steps=3)
    t.steps[1].valid = False
    assert t.reward == 10.0


def test_lines_are_readable_without_the_code():
    data = json.loads(trajectory().to_json())
    assert data["steps"][0]["action"] == "go to shelf 1" and data["success"] is True and data["steps"][0]["action_ids"] == [5, 6, 1]


def test_manifest_names_a_list():
    tasks = [Task("alfworld", id, "t") for id in "abc"]
    assert manifest_hash(tasks) != manifest_hash(tasks[::-1]) and manifest_hash(tasks) == manifest_hash(list(tasks))
    assert Trajectory(tasks[0], 0, 0).reward == 0
