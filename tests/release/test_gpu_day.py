"""`make gpu-day`: a Python that has torch and nothing of ours runs the folder that it fills; here without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts.dist import ROOT
from tests.torch_venv import torch_venv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LIMIT_MIB = 40
STEPS = ("facts", "topology", "health", "record", "memory", "launch", "why", "accept", "gpu_truth")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, with wheels for the Python of the lab's torch."""
    folder = tmp_path_factory.mktemp("gpu-day") / "folder"
    version = subprocess.check_output(
        [f"{torch_venv()}/bin/python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    )
    env = {**os.environ, "GPU_DAY_PYTHONS": version.strip(), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    fill = ["bash", str(ROOT / "scripts" / "gpu_day.sh"), "fill", str(folder)]
    done = subprocess.run(fill, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(folder: Path, python: str, out: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(out.parent), "PYTHON": python, "OUT": str(out)}
    env |= {"TMPDIR": str(out.parent), "GPU_DAY_SMALL": "1"}
    return subprocess.run(["bash", str(folder / "gpu_day.sh")], env=env, capture_output=True, text=True, check=False)


def test_the_folder_is_small_enough_to_be_carried(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < LIMIT_MIB << 20


def test_a_python_with_torch_alone_runs_every_step(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(folder, f"{torch_venv()}/bin/python", out)
    summary = (out / "summary.txt").read_text()
    assert done.returncode == 0, summary + done.stderr
    ends = dict(line.split(maxsplit=1) for line in summary.splitlines() if " exit " in line)
    assert tuple(ends) == STEPS
    # this machine's clock or GPUs may be told as unknown, a probe waits for others that measure,
    # and gpu_truth compares times of a busy machine
    assert {name for name, end in ends.items() if end.split()[1] == "0"} >= {*STEPS} - {
        "topology",
        "health",
        "memory",
        "gpu_truth",
    }
    assert len(list(out.iterdir())) <= 8
    assert '"workload": "llm"' in (out / "job.txt").read_text()
    truth = json.loads((out / "gpu_truth.txt").read_text().splitlines()[-1])
    assert truth["failed"] == {} and truth["rows"]
    with tarfile.open(out / "kept.tar.gz") as kept:
        names = kept.getnames()
    assert "recording/recording.yml" in names
    assert any("/jobs/" in name for name in names)
    # its own folder of work is gone
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_a_python_without_torch_is_told_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    done = run(folder, "/usr/bin/python3", tmp_path / "out")
    assert done.returncode == 1
    assert "has no torch: say PYTHON=" in done.stderr
    assert "has no torch" in (tmp_path / "out" / "summary.txt").read_text()
