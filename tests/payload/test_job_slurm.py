"""What a host with Slurm's commands tells of a job's files, without Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodectl.common.answers import documents
from nodectl.payload.jobs import slurm

JOB = "20261123-070000-abcd"


def test_a_long_line_is_cut_between_characters(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = tmp_path / JOB
    (folder / "ranks").mkdir(parents=True)
    (folder / "slurm.json").write_text('{"slurm_id": 7}')
    (folder / "hosts").write_text("node01\n")
    line = "x" + "\U0001f40c" * 200_000
    (folder / "ranks" / "0.log").write_text(f"{line}\nshort \U0001f40c")
    slurm.stream(str(tmp_path), JOB, "once", json.dumps({}))
    told = documents("login", capfdbinary.readouterr().out)
    assert "".join(each.get("text", "") for each in told) == f"{line}\nshort \U0001f40c"
