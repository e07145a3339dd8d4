"""What a job leaves beside its logs is named: files in its code's folder, and its own ones in /dev/shm."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.listing import Report, merge
from nodectl.payload.jobs import shared_memory
from nodectl.payload.jobs.folder import JobFolder, venv_of
from nodectl.payload.jobs.node_end import lacks_launcher
from nodectl.report.jobs import conclusion, job_text, why_text

JOB = "20261124-040000-ab12"


def test_new_files_are_told_and_old_ones_libraries_and_caches_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    job, shm, since = JobFolder(JOB), tmp_path / "shm", time.time() - 60
    shm.mkdir()
    monkeypatch.setattr(shared_memory, "_FOLDER", f"{shm}/")
    names = ["code/train.py", *(f"code/out/{n}.pt" for n in range(7)), "code/__pycache__/a.pyc"]
    for path in [*(Path(job.at(name)) for name in names), shm / "mine.bin", shm / "old.bin", shm / "nccl-ab"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in (Path(job.at("code/train.py")), shm / "old.bin"):
        os.utime(path, (since - 1, since - 1))
    assert shared_memory.left_behind(job, since) == {
        "outputs": [f"out/{n}.pt" for n in range(5)],
        "more_outputs": 2,
        "shared_memory": ["mine.bin"],
        "more_shared_memory": 0,
    }
    assert shared_memory.left_behind(job, time.time() + 60) == {}


def test_where_they_lie_is_said_at_the_end_and_later() -> None:
    plan = {"id": JOB, "created_at": 1.0, "operator": "me", "script": "t.py", "args": [], "nproc_per_node": 1}
    plan["hosts"] = [{"name": name} for name in ("gpu01", "gpu02")]
    left: dict[str, Any] = {"outputs": ["out/a.pt"], "more_outputs": 2, "shared_memory": ["mine.bin"]}

    def of(rank: int, left: dict[str, Any]) -> Report:
        state = {"state": "finished", "final": True, "failures": [], "heard": {}, "ended_at": 2.0, "left": left}
        document = {"plan": plan, "rank": rank, "alive": False, "processes": 0, "state": state}
        return Report(f"gpu0{rank + 1}", document)

    job = merge([of(0, left), of(1, {})], {})
    folder = f"~/.local/state/nodectl/jobs/{JOB}/code"
    line = f"new files on gpu01 in {folder}: out/a.pt, 2 more; they go with `nodectl jobs clean`"
    for text in (conclusion(job), job_text(job), why_text(job)):
        assert line in text and "new files on gpu01 in /dev/shm: mine.bin; they stay there" in text


def test_a_containers_torchrun_is_not_looked_for_on_the_host(tmp_path: Path) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text("")
    launcher.chmod(0o755)
    plan: dict[str, Any] = {"launcher": str(launcher), "venv": "/opt/venv", "members": [{"name": "a"}], "member": 0}
    assert lacks_launcher(plan) == "/opt/venv/bin/torchrun is not there"
    assert lacks_launcher({**plan, "start": {"container": {"engine": "sh"}}}) == ""
    assert lacks_launcher({**plan, "start": {"container": {"engine": "nosuch"}}}) == "nosuch is not there"


def test_a_host_has_an_environment_of_its_own(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"venv": "/opt/a", "members": [{"name": "a", "venv": str(tmp_path)}], "member": 0}
    assert (venv_of(plan, plan["members"][0]), venv_of(plan, {"name": "b"})) == (str(tmp_path), "/opt/a")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text("")
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    plan["launcher"] = str(tmp_path / "bin" / "torchrun")
    assert lacks_launcher(plan) == ""
