"""What a host tells of its ranks' traces, as the program that nodectl runs there: figures, and files in frames."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from nodectl.payload.jobs.job_id import PLAN_VERSION
from tests.payload.traces import gpu_events, write

JOB = "20261123-000000-abcd"


def run(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(state), "XDG_STATE_HOME": str(state)}
    argv = ["/usr/bin/python3", "-S", "-B", str(payload_dir() / "run.py"), *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The traces of a job of three ranks here: one whole, one damaged, one that was killed."""
    made = tmp_path / "nodectl" / "jobs" / JOB / "traces"
    made.mkdir(parents=True)
    (made.parent / "plan.json").write_text(json.dumps({"version": PLAN_VERSION}))
    for rank, problem in {4: "", 5: "", 6: "the rank was killed"}.items():
        note = {"tool": "torch", "attempt": 2, "optimizer_steps": 9, "problem": problem}
        (made / f"{rank}.note.json").write_text(json.dumps(note))
    write(made / "4.json.gz", gpu_events())
    (made / "5.json.gz").write_bytes(b"\x1f\x8b no archive")
    (made / "7.note.json").write_text("[" * 10_000)
    (made / "other.json").write_text("{}")
    return made


def rows(state: Path) -> list[dict[str, Any]]:
    done = run(state, "jobs.control", "traces", JOB)
    assert done.returncode == 0, done.stderr
    [text] = texts(done.stdout)
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_every_rank_has_its_figures_or_why_not(folder: Path, tmp_path: Path) -> None:
    found = rows(tmp_path)
    assert [(row["rank"], row["attempt"], row["file"]) for row in found] == [
        (4, 2, "4.json.gz"), (5, 2, "5.json.gz"), (6, 2, ""), (7, 0, ""),
    ]  # fmt: skip
    assert [step["number"] for step in found[0]["summary"]["steps"]] == [1, 2] and found[0]["problem"] == ""
    assert "cut or damaged" in found[1]["problem"] and found[2]["problem"] == "the rank was killed"
    assert found[3]["problem"] == "its note cannot be read"
    kept = folder / "4.json.gz.summary"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert rows(tmp_path) == found
    kept.write_text("damaged")
    assert rows(tmp_path) == found


def test_of_a_job_that_is_not_here_nothing_is_told(tmp_path: Path) -> None:
    assert rows(tmp_path) == []


def test_a_file_is_sent_whole_and_nothing_else_is(folder: Path, tmp_path: Path) -> None:
    (folder / "4.json.gz").write_bytes(os.urandom(1_300_000))
    done = run(tmp_path, "jobs.traces", JOB, "4.json.gz")
    frames = [json.loads(text) for text in texts(done.stdout)]
    assert frames[-1] == {"end": 1_300_000} and len(frames) == 4
    assert b"".join(base64.b64decode(frame["data"]) for frame in frames[:-1]) == (folder / "4.json.gz").read_bytes()
    (folder / "8.json.gz").symlink_to("/etc/passwd")
    os.mkfifo(folder / "9.json.gz")
    for name in ("../plan.json", "4.note.json", "8.json.gz", "9.json.gz", "1.json.gz"):
        refused = run(tmp_path, "jobs.traces", JOB, name)
        assert (refused.returncode, refused.stdout) == (1, "") and refused.stderr, name
