"""seed/trajectory.py: one line of JSON each, and back."""
import json

from fakes import trajectory

from seed.augment import H
from seed.trajectory import Task, Trajectory, manifest_hash, read_trajectories


def test_there_and_back(tmp_path):
    t = trajectory(steps=8, group=2, copy=5)
    t.summary, t.skill = "It wörked.", "Go \"there\"\nfirst.\u2028\x85"
    t.steps[0].valid, t.steps[1].admissible, t.steps[2].ended = False, False, False       # three flags that must not be mixed up
    t.steps[3].context = H(t.steps[3].context, "Wait.")
    t.steps[4].logprobs = [-0.123456, -7.5e-6, -33.0]
    second = trajectory(success=False, copy=1)
    second.skill_error = "cut off"
    path = tmp_path / "t.jsonl"
    path.write_text(t.to_json(update=3) + "\n" + second.to_json() + "\n")
    back, other = read_trajectories(path)
    for step in second.steps:
        step.prompt_ids = []
    for step in t.steps:
        step.prompt_ids = []
    t.steps[4].logprobs[1] = -8e-6                                                         # rounded to six decimals
    assert back == t and other == second and json.loads(path.read_text().split("\n")[0])["update"] == 3


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
