"""The preprocessing program: every pool comes to the same, and its files go however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from tests.torch_venv import torch_venv

RUN = [str(payload_dir() / "run.py"), "articles.preprocess"]
CASES = [
    f"{mode}:{files}:{workers}" for files, workers in ((3, 1), (3, 3), (2, 32)) for mode in ("threads", "processes")
]


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has pandas: the lab's."""
    path = f"{torch_venv()}/bin/python"
    if subprocess.run([path, "-c", "import pandas, pyarrow"], check=False, capture_output=True).returncode:
        pytest.skip(f"no pandas and pyarrow in {torch_venv()}")
    return path


def env(state: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(state), "PYTHONDONTWRITEBYTECODE": "1"}


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts(output)]


@pytest.mark.slow
def test_all_pools_and_an_end_by_a_signal(python: str, tmp_path: Path) -> None:
    argv = [python, *RUN, "measure", "--rows=500", "--repetitions=2", *CASES]
    done = subprocess.run(argv, env=env(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, *timed = events(done.stdout)
    assert (first["event"], first["files"], first["columns"]) == ("files", 3, 40)
    # in turns, so that what drifts touches all alike
    assert [f"{each['mode']}:{each['files']}:{each['workers']}" for each in timed] == CASES * 2
    assert all(each["seconds"] > 0 for each in timed)
    assert list(tmp_path.iterdir()) == []
    # however little time there is, every case is timed once
    argv[argv.index("--repetitions=2")] = "--repetitions=1000"
    done = subprocess.run([*argv, "--seconds=0"], env=env(tmp_path), capture_output=True, text=True, check=False)
    assert [event["event"] for event in events(done.stdout)] == ["files", *["timed"] * len(CASES)]
    long = [python, *RUN, "measure", "--rows=500", "--repetitions=1000", *CASES]
    with subprocess.Popen(long, env=env(tmp_path), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.read(1)
        (folder,) = (tmp_path / "nodectl").iterdir()
        assert folder.name.startswith("preprocess-") and len(list(folder.glob("*.parquet"))) == 3
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
        assert running.returncode == 1
    assert list(tmp_path.iterdir()) == []
    # its processes are gone, too
    until = time.monotonic() + 10
    while (left := children_of(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def children_of(state: Path) -> list[str]:
    """Processes that were started with this state folder."""
    mark = f"XDG_STATE_HOME={state}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return [each for each in found if each]


def test_a_look_tells_what_is_missing_and_removes_what_a_killed_run_left(tmp_path: Path) -> None:
    left = tmp_path / "nodectl" / f"preprocess-{os.uname().nodename}-left"
    left.mkdir(parents=True)
    # without any package but the standard library
    argv = [sys.executable, "-I", "-S", *RUN, "look"]
    done = subprocess.run(argv, env=env(tmp_path), capture_output=True, text=True, check=False)
    (ready,) = events(done.stdout)
    assert (ready["pandas"], ready["pyarrow"]) == (None, None) and ready["cpus"] >= 1
    assert not left.exists()
