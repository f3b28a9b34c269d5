"""Fixtures shared by the test files. Nothing is downloaded; games are made once a session."""
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:      # two workers share the cores (pytest.ini): one thread each, also for what they start
    os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import pytest

SHARED = Path(os.environ.get("SEED_SHARED", ROOT.parent / "shared"))


def shared(path: str) -> Path:
    """A file or folder beside the project; the test is skipped where it is absent."""
    if not (SHARED / path).exists():
        pytest.skip(f"needs {SHARED / path}, which is not there (set SEED_SHARED to the folder that holds {path})")
    return SHARED / path


def spec_cases(name: str):
    """The worked cases of the environments' specification: a JSON file in $SEED_SPEC_CASES, by default the folder `specs` beside
    the project. The test is skipped where it is absent."""
    folder = Path(os.environ.get("SEED_SPEC_CASES") or SHARED / "specs")
    if not (folder / name).exists():
        pytest.skip(f"needs {folder / name}, which is not there (set SEED_SPEC_CASES to the folder with the worked cases)")
    return json.loads((folder / name).read_text(encoding="utf-8"))


def spec_params(name: str, *keys: str) -> list:
    """The list under `keys` of such a file as parameters, one a test; a single skipped one where the file is absent."""
    try:
        cases = spec_cases(name)
    except pytest.skip.Exception as reason:
        return [pytest.param(None, marks=pytest.mark.skip(reason=str(reason)))]
    for key in keys:
        cases = cases[key]
    return [pytest.param(case, id=str(number)) for number, case in enumerate(cases)]


def same_in_two_processes(code: str, *folders: Path) -> str:
    """What `code` prints in a process of its own; the test fails where another hash seed makes it print something else. The n-th
    process is given the n-th of `folders` as its argument."""
    outs = []
    for n, hash_seed in enumerate("12"):
        done = subprocess.run([sys.executable, "-c", code, *map(str, folders[n:n + 1])], capture_output=True, text=True, cwd=ROOT,
                              env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": hash_seed, "HOME": "/tmp"})
        assert done.returncode == 0, done.stderr[-2000:]
        outs.append(done.stdout)
    assert outs[0] == outs[1]
    return outs[0]


@pytest.fixture(scope="session")
def groundings(tmp_path_factory):
    return tmp_path_factory.mktemp("groundings")


@pytest.fixture(scope="session")
def games(tmp_path_factory, groundings):
    """A data folder with 18 training games, 6 seen and 6 unseen ones."""
    from seed.envs.alfworld_games import Difficulty, make_games
    root = tmp_path_factory.mktemp("games")
    make_games(root, {"train": 18, "valid_seen": 6, "valid_unseen": 6}, Difficulty(), 7, groundings, (4, 2))
    return root


@pytest.fixture
def env(games, groundings):
    from seed.envs.alfworld import AlfWorld
    return AlfWorld(games, slots=8, cache=groundings)


@pytest.fixture(scope="session")
def vision_model(tmp_path_factory):
    """The folder of a vision-language model with random weights, as a hub's would be."""
    from fakes import build_vision_model
    return build_vision_model(tmp_path_factory.mktemp("vision_model"))


@pytest.fixture(scope="session")
def seeing_policy(vision_model):
    from seed.config import make_config
    from seed.policy import load_policy
    return load_policy(make_config({"env": "sokoban", "preset": "qwen2.5-vl-3b", "model": str(vision_model), "quantize": False,
                                    "dtype": "float32", "lora_rank": 4}))
