"""The run folder: what a run was, what it did, and what it needs to go on.

    config.json         configuration, command, versions, the list of training games by hash
    metrics.jsonl       one line an update
    evaluations.jsonl   one line an evaluation, with every game's outcome
    trajectories.jsonl  one line an episode: observations, replies, token ids, the skill or why there is none
    curves.png          drawn from the two above
    start/              the policy that RL started from: the reference of the KL term
    checkpoints/update-N/   policy, optimizer, how long each of the files was, and library.json where a library grows

A checkpoint appears whole or not at all (written aside, then renamed). Going on cuts the files back to the checkpoint's
lengths, so an interrupted update leaves no trace. All randomness is a function of (seed, update), so there is no random
state to save.
"""
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

from seed.config import Config, as_dict, load_config
from seed.distributed import rank
from seed.errors import UserError, go_on_with

FILES = ("metrics.jsonl", "evaluations.jsonl", "trajectories.jsonl")
SIZES = {"updates", "batch_tokens", "sample_tokens"}   # what may be other when a run goes on: how far, and how much at once
MAY_CHANGE = SIZES | {"out", "resume", "preset"}       # preset: `auto` is another word for it; the resolved one is compared


def append_line(path: Path, line: str) -> None:
    """Append one line. One that was cut off while it was written goes first: only the writer mends a file."""
    with open(path, "a+b") as out:
        if out.tell():
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":
                out.seek(0)
                out.truncate(out.read().rfind(b"\n") + 1)
        out.write(line.encode() + b"\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or as it was."""
    aside = path.with_name(f"{path.name}.unfinished")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


def read_lines(path: Path) -> list[str]:
    """The whole lines of a file that is appended to, without a last one that was cut off."""
    if not Path(path).exists():
        return []
    data = Path(path).read_bytes()
    return data[:data.rfind(b"\n") + 1].decode().split("\n")[:-1]  # not splitlines: a text may hold other line separators


def must_be_new(folder: Path) -> None:
    """A new run needs a folder of its own."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists: add --resume to go on with it as it was, or give another --out, for example --out {folder}-2")


def on_first_rank(write):
    """Of several processes only the first writes (`seed/distributed.py`)."""
    return functools.wraps(write)(lambda *args, **options: write(*args, **options) if rank() == 0 else None)


class RunLog:
    def __init__(self, folder: Path):
        self.folder = Path(folder)

    @classmethod
    def create(cls, config: Config, facts: dict) -> "RunLog":
        """A new run folder. `facts`: what else should stand in config.json."""
        run = cls(config.out)
        if rank():
            return run
        must_be_new(run.folder)
        run.folder.mkdir(parents=True, exist_ok=True)
        run.record(config, {"command": " ".join(sys.argv), "versions": versions(), "commit": commit(), **facts})
        run.say_how_to_go_on()
        return run

    def say_how_to_go_on(self) -> None:
        go_on_with(f"python train_seed.py --resume --out {self.folder}")

    @on_first_rank
    def record(self, config: Config, facts: dict) -> None:
        write_whole(self.folder / "config.json", json.dumps({"config": as_dict(config), "config_hash": config_hash(config), **facts}, indent=2))

    @classmethod
    def reopen(cls, config: Config, given: set[str]) -> tuple["RunLog", Config]:
        """The folder of an interrupted run, with its own configuration; options on the command line must agree with it."""
        run = cls(config.out)
        stored = load_config(run.folder / "config.json")
        changed = [f"--{name.replace('_', '-')} {getattr(config, name)} (was {getattr(stored, name)})"
                   for name in sorted(given - MAY_CHANGE) if getattr(config, name) != getattr(stored, name)]
        if "preset" in given and config.preset != stored.preset:
            changed.append(f"--preset {config.preset} (was {stored.preset})")
        if changed:
            raise UserError(f"{run.folder} cannot go on with other settings: {', '.join(changed)}; leave them out, or start a "
                            f"new run with another --out")
        for name in given & SIZES:
            setattr(stored, name, getattr(config, name))
        stored.out = config.out
        facts = {name: value for name, value in run.facts().items() if name not in ("config", "config_hash")}
        run.record(stored, facts)
        run.say_how_to_go_on()
        done = run.checkpoints()[-1] if run.checkpoints() else 0
        if done >= stored.updates > 0:
            raise UserError(f"{run.folder} has all its {stored.updates} updates: give a larger --updates to go on")
        print(f"going on with {run.folder} after update {done}", file=sys.stderr)
        if facts["commit"] != commit() or commit().endswith("+"):
            print(f"  note: it began with the code of commit {facts['commit']}, this is {commit()}", file=sys.stderr)
        return run, stored

    def facts(self) -> dict:
        return json.loads((self.folder / "config.json").read_text())

    @on_first_rank
    def write(self, file: str, line: str) -> None:
        append_line(self.folder / file, line)

    def read(self, file: str) -> list[dict]:
        return [json.loads(line) for line in read_lines(self.folder / file)]

    # --- checkpoints

    def checkpoints(self) -> list[int]:
        """The updates that there are checkpoints of, in order."""
        return sorted(int(path.name.removeprefix("update-")) for path in (self.folder / "checkpoints").glob("update-*"))

    def path(self, update: int) -> Path:
        return self.folder / "checkpoints" / f"update-{update}"

    def policy_folder(self, update: int) -> Path:
        """Where the policy after `update` updates lies; 0 is the start."""
        return self.path(update) / "policy" if update else self.folder / "start"

    @on_first_rank
    def save_start(self, policy) -> None:
        policy.save(self.folder / "start")

    @on_first_rank
    def save(self, update: int, policy, optimizer, library=None) -> None:
        """Checkpoint the state after `update` updates; earlier ones go, except the best so far."""
        aside = self.folder / "checkpoints" / "unfinished"
        shutil.rmtree(aside, ignore_errors=True)
        policy.save(aside / "policy")
        torch.save(optimizer.state_dict(), aside / "optimizer.pt")
        if library and library.grows:
            library.save(aside / "library.json")
        lengths = {file: (self.folder / file).stat().st_size if (self.folder / file).exists() else 0 for file in FILES}
        (aside / "state.json").write_text(json.dumps({"update": update, "lengths": lengths}))
        os.replace(aside, self.path(update))
        best, _ = self.best()
        for old in self.checkpoints():
            if old not in (update, best):
                shutil.rmtree(self.path(old))

    def restore(self, policy, optimizer, library=None) -> int:
        """Load the last checkpoint into policy, optimizer and a growing library, cut the files back to it; returns how many updates it had.

        A run that was interrupted before its first checkpoint begins again (0).
        """
        state = {"update": 0, "lengths": dict.fromkeys(FILES, 0)}
        if self.checkpoints():
            folder = self.path(self.checkpoints()[-1])
            state = json.loads((folder / "state.json").read_text())
            policy.load(folder / "policy")
            optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
            if library and library.grows:
                library.load(folder / "library.json")
        for file, length in state["lengths"].items():
            if (self.folder / file).exists():
                os.truncate(self.folder / file, length)
        return state["update"]

    def best(self) -> tuple[int, int]:
        """(update, evaluations looked at): the highest success in this run's evaluations, the first of equals; (0, 0) for none.

        Chosen by looking at many noisy numbers, so its own success is biased upwards.
        """
        evaluations = [e for e in self.read("evaluations.jsonl") if not e["with_skills"]]
        return max(evaluations, key=lambda e: (e["success"], -e["update"]), default={"update": 0})["update"], len(evaluations)

    # --- curves

    @on_first_rank
    def draw(self) -> None:
        """curves.png: success, episode length, the distillation, entropy."""
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
        metrics, evaluations = self.read("metrics.jsonl"), self.read("evaluations.jsonl")
        panels = [("success", ["success"]), ("turns an episode", ["turns"]), ("OPD loss", ["opd_loss"]),
                  ("gate: mean, share above 0.5", ["gate_mean", "gate_open"]), ("entropy, nats a token", ["entropy"]),
                  ("KL to the start", ["kl"])]
        figure, axes = plt.subplots(2, 3, figsize=(12, 6), constrained_layout=True)
        for axis, (title, names) in zip(axes.flat, panels):
            for name in names:
                points = [(m["update"], m[name]) for m in metrics if m.get(name) is not None]
                if points:
                    axis.plot(*zip(*points), label=name if len(names) > 1 else "rollouts" if name == "success" else None)
            axis.set(title=title, xlabel="update")
        for split, with_skills in sorted({(e["split"], e["with_skills"]) for e in evaluations}):
            rows = [e for e in evaluations if (e["split"], e["with_skills"]) == (split, with_skills)]
            axes.flat[0].errorbar([e["update"] for e in rows], [e["success"] for e in rows], fmt="o-", capsize=3,
                                  label=split + " with skills" * with_skills,
                                  yerr=[[e["success"] - e["low"] for e in rows], [e["high"] - e["success"] for e in rows]])
        for axis in axes.flat:
            if axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize=8)
        aside = self.folder / "curves.unfinished.png"
        figure.savefig(aside, dpi=90)
        plt.close(figure)
        os.replace(aside, self.folder / "curves.png")


def config_hash(config: Config) -> str:
    """A name for all settings of a run but its folder: those that are not the defaults, so that a new knob renames no old run."""
    defaults = as_dict(Config())
    settings = {name: value for name, value in as_dict(config).items() if name not in ("out", "resume") and value != defaults[name]}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def versions() -> dict:
    packages = ("torch", "transformers", "peft", "bitsandbytes", "alfworld", "textworld")
    return {"python": platform.python_version(), "machine": platform.platform(), **{name: version(name) for name in packages}}


def commit() -> str:
    """The commit of this code, with + where files were changed since; empty where it is not a git checkout."""
    git = lambda *words: subprocess.run(["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True)
    try:
        head = git("rev-parse", "--short=12", "HEAD")
        return head.stdout.strip() + "+" * bool(git("status", "--porcelain", "-uno").stdout.strip()) if not head.returncode else ""
    except OSError:
        return ""
