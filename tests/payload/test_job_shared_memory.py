"""Which segments of /dev/shm a job's end takes away: those of its own that nobody has any more."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import shared_memory
from nodectl.payload.jobs.contain import Containment
from nodectl.payload.jobs.folder import new_files, venv_of
from nodectl.payload.jobs.node_end import lacks_launcher


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in the place of /dev/shm, which no other program of this machine uses."""
    monkeypatch.setattr(shared_memory, "_FOLDER", f"{tmp_path}/")
    monkeypatch.setattr(shared_memory, "_MAPPED", _mapped_below(tmp_path))
    monkeypatch.setattr(shared_memory, "all_pids", lambda: [os.getpid()])
    yield tmp_path


def _mapped_below(folder: Path) -> object:
    import re

    return re.compile(rf"^\S+ \S+ \S+ [0-9a-f]+:[0-9a-f]+ (\d+) +{re.escape(str(folder))}/([^/\n]+)$", re.MULTILINE)


def test_what_came_with_the_job_and_is_forsaken_goes_and_nothing_else(shm: Path) -> None:
    (shm / "torch_70_9_0").touch()
    held = Containment.recorded("job", {"segments": sorted(shared_memory.present())})
    for name in ("torch_71_9_0", "psm_handed_on", "data_of_the_user", "torch_dataset"):
        (shm / name).touch()
    held.remove()
    assert sorted(path.name for path in shm.iterdir()) == [
        "data_of_the_user",
        "psm_handed_on",
        "torch_70_9_0",
        "torch_dataset",
    ]


def test_a_job_whose_state_was_lost_takes_what_came_after_its_plan(shm: Path) -> None:
    (shm / "torch_70_9_0").touch()
    time.sleep(0.02)  # the kernel's clock of files has ticks of up to 10 ms
    planned_s = time.time()
    time.sleep(0.02)
    (shm / "torch_71_9_0").touch()
    Containment.recorded("job", {"segments": sorted(shared_memory.present(before_s=planned_s))}).remove()
    assert [path.name for path in shm.iterdir()] == ["torch_70_9_0"]


def test_while_another_program_works_with_segments_those_without_a_user_stay(shm: Path) -> None:
    held = Containment.recorded("job", {"segments": []})
    for name in ("torch_71_9_0", "torch_72_9_0"):
        (shm / name).write_bytes(bytes(mmap.PAGESIZE))
    with (shm / "torch_72_9_0").open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE):
        held.remove()
        assert sorted(path.name for path in shm.iterdir()) == ["torch_71_9_0", "torch_72_9_0"]
    held.remove()
    assert list(shm.iterdir()) == []


def test_a_semaphore_of_another_program_of_the_login_stays() -> None:
    """Its maker has it mapped by a name that is gone, and hands its own name to processes that it starts later."""
    lock = multiprocessing.get_context("forkserver").Lock()
    name = f"sem.{lock._semlock.name[1:]}"  # type: ignore[attr-defined]
    assert name in {name for name, _ in shared_memory.mapped_by([os.getpid()])}
    shared_memory.remove({segment for segment in shared_memory.present() if segment[0] == name})
    shared_memory.remove_forsaken(set())
    assert Path(f"/dev/shm/{name}").exists()


def test_new_files_are_listed_without_old_ones_and_caches(tmp_path: Path) -> None:
    since = time.time() - 60
    for name in ("train.py", *(f"out/{n}.pt" for n in range(7)), "__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    os.utime(tmp_path / "train.py", (since - 1, since - 1))
    assert new_files(str(tmp_path), since) == [*(f"out/{n}.pt" for n in range(5)), "2 more"]
    assert new_files(str(tmp_path), time.time() + 60) == []


def test_a_host_has_an_environment_of_its_own(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"venv": "/opt/a", "members": [{"name": "a", "venv": str(tmp_path)}], "member": 0}
    assert (venv_of(plan, plan["members"][0]), venv_of(plan, {"name": "b"})) == (str(tmp_path), "/opt/a")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text("")
    (tmp_path / "bin" / "torchrun").chmod(0o755)
    plan["launcher"] = str(tmp_path / "bin" / "torchrun")
    assert lacks_launcher(plan) == ""
