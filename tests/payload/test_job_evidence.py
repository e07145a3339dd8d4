"""A file that a rank misses, and that stayed where the job was launched, is said to have done so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.remedies import remedy_of
from nodectl.model.job import Failure
from nodectl.payload.jobs.evidence import explain_stayed

STAYED = [["data/", ".gitignore"], ["src/made/", ".nodectlignore"], ["cfg/a.yml", "cfg/.gitignore"], [".env", "own"]]
NONE = "FileNotFoundError: [Errno 2] No such file or directory: "


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "code" / "data").mkdir(parents=True)
    (tmp_path / "code" / "data" / "back.bin").touch()
    plan = {"stayed": STAYED, "workdir": "scripts", "script": "train.py"}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    return tmp_path


def told(job: Path, message: str, category: str = "data_missing", *evidence: str) -> list[str]:
    failure: dict[str, Any] = {"class": category, "message": message, "evidence": list(evidence)}
    explain_stayed(failure, str(job))
    return [line for line in failure["evidence"] if "did not travel" in line]


@pytest.mark.parametrize(
    ("message", "category", "place", "rule"),
    [
        (f"{NONE}'data/train/x.bin'", "data_missing", "data/train/x.bin", ".gitignore leaves out data/"),
        (f"{NONE}'../data/x.bin'", "data_missing", "data/x.bin", ".gitignore leaves out data/"),
        (f"{NONE}'cfg'", "data_missing", "cfg", "cfg/.gitignore leaves out cfg/a.yml"),
        (f"{NONE}'.env'", "data_missing", ".env", "own leaves out .env"),
        ("RuntimeError: cannot read ./data/x.pt", "data_missing", "data/x.pt", ".gitignore leaves out data/"),
        ("ModuleNotFoundError: No module named 'made'", "import_error", "src/made.py", None),
        ("ModuleNotFoundError: No module named 'made.x'", "import_error", "src/made/x.py", ".nodectlignore leaves out"),
    ],
)
def test_what_was_left_here_is_named_with_the_rule(
    job: Path, message: str, category: str, place: str, rule: str | None
) -> None:
    (line,) = told(job, message, category)
    assert line.startswith(f"{place} did not travel with the code: {rule or ''}") or rule is None
    if rule is None:
        assert line == "src/made did not travel with the code: .nodectlignore leaves out src/made/"
    wanted = "--env-file" if place == ".env" else f"--include {line.split(' did')[0]},"
    assert wanted in remedy_of(Failure("gpu01", 0, "exception", message, 1, category=category, evidence=(line,)))
