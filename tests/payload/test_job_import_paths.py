"""What a job's script can import of its project: packages of the top and of src/, and never in Python's own place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.payload.jobs import launcher
from nodectl.payload.jobs.folder import JobFolder


def _imports(job: JobFolder, script: str, **start: str) -> str:
    """The words of `import` that fail in a script of the project, run as torchrun runs it."""
    host = {"address": "10.0.0.1"}
    plan = {
        "launcher": "/opt/launch",
        "hosts": [host],
        "rank": 0,
        "nproc_per_node": 1,
        "master_port": 29500,
        "script": script,
        "args": [],
        "start": start,
    }
    command = launcher.command(plan, job)
    env = {**command.env, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, script]
    done = subprocess.run(argv, env=env, cwd=command.cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_script_finds_what_lies_in_src_as_if_it_were_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    job = JobFolder("20261124-021744-c981")
    code = Path(job.at("code"))
    tries = "import queue\ntry:\n    import tiny\n    print('tiny')\nexcept ImportError as e:\n    print(e)\n"
    for place, text in {"src/tiny/__init__.py": "", "train.py": tries, "scripts/train.py": tries}.items():
        (code / place).parent.mkdir(parents=True, exist_ok=True)
        (code / place).write_text(text)
    assert _imports(job, "train.py") == _imports(job, "scripts/train.py") == "tiny"
    # src/ is a package itself: its modules are no modules of the top, least of all in place of Python's
    (code / "src" / "queue.py").write_text("raise SystemExit('not mine')\n")
    assert _imports(job, "train.py") == "No module named 'tiny'"
