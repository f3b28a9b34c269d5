"""One run of the tiny preset, remembered: what run_table.py and tiny.py are made of.

A run is a name, a seed and options of train_seed.py. It is trained (interrupted runs go on), its last policy plays all held-out
games of both splits, and what is kept of it is one small file, results/runs/NAME-seedN-HASH.json; HASH is that of the whole
configuration. Where that file exists the run is not repeated, so a long list of runs can be worked off piece by piece.
"""
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from seed.config import parse
from seed.runlog import RunLog, config_hash

FOLDER, RECORDS = ROOT / "runs" / "experiments", ROOT / "results" / "runs"
SPLITS = SEEN, UNSEEN = "valid_seen", "valid_unseen"  # the first is played during training anyway
KEPT = ("wins", "games", "success", "low", "high", "mean_turns", "malformed", "inadmissible", "manifest", "temperature", "by_type")
CURVES = ("success", "turns", "entropy", "kl", "equal_groups", "grad_norm", "opd_loss", "gate_mean", "gate_open", "delta_mean", "delta_abs",
          "delta_std", "skill_hit", "skill_valid", "gradient_ratio", "gradient_cosine")
T_975 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # Student's t for a 95 % interval over that many seeds


@dataclass(frozen=True)
class Run:
    name: str
    seed: int
    options: tuple = ()
    env: str = "alfworld"

    def tiny(self) -> list[str]:
        return ["--env", self.env, "--preset", "tiny", "--data", "made"]

    def arguments(self) -> list[str]:
        return [*self.tiny(), *map(str, self.options), "--seed", str(self.seed)]

    def digest(self) -> str:
        return config_hash(parse("", arguments=self.arguments())[0])

    def stem(self) -> str:
        return f"{self.name.replace(' ', '_')}-seed{self.seed}-{self.digest()}"


def remembered(run: Run) -> dict | None:
    file = RECORDS / f"{run.stem()}.json"
    return json.loads(file.read_text()) if file.exists() else None


def do_all(runs: list[Run]) -> None:
    """Do those that are not remembered, as many at a time as there are cores, each with one thread."""
    todo = [run for run in runs if remembered(run) is None]
    print(f"{len(runs)} runs, {len(todo)} to do", file=sys.stderr)
    if todo:
        for tiny in {tuple(run.tiny()) for run in todo}:
            call("train_sft.py", *tiny)  # all runs of an environment start from one Stage 1
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for run, record in zip(todo, pool.map(do, todo)):
                ends = {e["split"]: e["success"] for e in record["evaluations"] if e["state"] == "last" and not e["with_skills"]}
                print(f"{run.stem()}: {', '.join(f'{split} {success:.1%}' for split, success in ends.items())}", file=sys.stderr)


def call(script: str, *arguments):
    """Run a script of this project; its output goes on the screen, without the progress bars."""
    subprocess.run([sys.executable, str(ROOT / script), *map(str, arguments)], check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def do(run: Run) -> dict:
    """Train (or go on, or do nothing), evaluate, and write the record."""
    folder, log, began = FOLDER / run.stem(), RunLog(FOLDER / run.stem()), time.time()
    if not (folder / "config.json").exists():
        call("train_seed.py", *run.arguments(), "--out", folder)
    facts = log.facts()
    updates = facts["config"]["updates"]
    if updates and (not log.checkpoints() or log.checkpoints()[-1] < updates):
        call("train_seed.py", "--resume", "--out", folder)
    during, metrics, evaluations = log.read("evaluations.jsonl"), log.read("metrics.jsonl"), []
    for update, state in ((0, "start"), (updates, "last")):
        for skills in sorted({e["with_skills"] for e in during}):
            seen = next(e for e in during if (e["update"], e["with_skills"]) == (update, skills))
            unseen = played_unseen(folder, state, skills, log.policy_folder(update))
            evaluations += [{"state": state, "update": update, "split": e["split"], "with_skills": skills, **{key: e[key] for key in KEPT},
                             "outcomes": "".join(str(plays[0]) for plays in e["outcomes"].values())} for e in (seen, unseen)]
    record = {"name": run.name, "method": facts["config"]["method"], "env": run.env, "preset": "tiny", "seed": run.seed,
              "command": " ".join(["python train_seed.py", *run.arguments()]), "config_hash": run.digest(), "commit": facts["commit"],
              "date": time.strftime("%Y-%m-%d"), "machine": machine(), "versions": facts["versions"],
              "minutes": round(sum(sum(m["seconds"].values()) for m in metrics) / 60, 1), "wall_minutes": round((time.time() - began) / 60, 1),
              "evaluations": evaluations,
              "during": [{key: e[key] for key in ("update", "split", "with_skills", "wins", "games", "success", "low", "high")} for e in during],
              "metrics": {name: [m.get(name) if m.get(name) is None else round(m[name], 4) for m in metrics] for name in CURVES
                          if any(m.get(name) is not None for m in metrics)}}
    RECORDS.mkdir(exist_ok=True)
    (RECORDS / f"{run.stem()}.json").write_text(json.dumps(record) + "\n")
    return record


def played_unseen(folder: Path, state: str, skills: bool, policy: Path) -> dict:
    """The evaluation on unseen games; runs that start from the same weights play them once."""
    weights = hashlib.sha256((policy / "model.safetensors").read_bytes()).hexdigest()[:12]
    file = FOLDER / f"unseen-{weights}{'-skills' * skills}.json"
    if not file.exists():
        call("eval.py", "--run", folder, "--checkpoint", state, "--split", UNSEEN, "--json", file, *["--with-skills"] * skills)
    return json.loads(file.read_text())["evaluations"][0]


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def end(record: dict, split: str, with_skills: bool = False, state: str = "last") -> dict:
    """An evaluation of a record, its outcomes by number of the game."""
    (e,) = [e for e in record["evaluations"] if (e["split"], e["with_skills"], e["state"]) == (split, with_skills, state)]
    return {**e, "outcomes": {i: [int(x)] for i, x in enumerate(e["outcomes"])}}


def over_seeds(values: list[float]) -> dict:
    """Mean over the seeds with its 95 % t interval (of one seed: none)."""
    n = len(values)
    mean = sum(values) / n
    half = T_975[n] * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n) if n > 1 else math.nan
    return {"mean": mean, "low": mean - half if n > 1 else None, "high": mean + half if n > 1 else None, "values": values}
