"""Which segments of /dev/shm a job's end takes away: those of its own that nobody has any more."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.payload.jobs import shared_memory
from nodectl.payload.jobs.contain import Containment


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
    (shm / "torch_before").touch()
    held = Containment.recorded("job", {"segments": sorted(shared_memory.present())})
    for name in ("torch_killed", "psm_killed", "data_of_the_user"):
        (shm / name).touch()
    held.remove()
    assert sorted(path.name for path in shm.iterdir()) == ["data_of_the_user", "torch_before"]


def test_while_another_program_works_with_segments_those_without_a_user_stay(shm: Path) -> None:
    held = Containment.recorded("job", {"segments": []})
    for name in ("torch_killed", "torch_others"):
        (shm / name).write_bytes(bytes(mmap.PAGESIZE))
    with (shm / "torch_others").open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE):
        held.remove()
        assert sorted(path.name for path in shm.iterdir()) == ["torch_killed", "torch_others"]
    held.remove()
    assert list(shm.iterdir()) == []


def test_a_state_that_does_not_tell_what_was_there_before_takes_nothing_away(shm: Path) -> None:
    (shm / "torch_somebodys").touch()
    Containment.recorded("job", {"kind": "cgroup"}).remove()
    assert (shm / "torch_somebodys").exists()


def test_a_later_shell_knows_from_the_record_what_was_there(shm: Path) -> None:
    (shm / "torch_before").touch()
    held = Containment("job", None, False, 0)
    held.segments = shared_memory.present()
    assert Containment.recorded("job", held.record()).segments == {
        ("torch_before", (shm / "torch_before").stat().st_ino)
    }


def test_a_semaphore_of_another_program_of_the_login_stays() -> None:
    """Its maker has it mapped by a name that is gone, and hands its own name to processes that it starts later."""
    lock = multiprocessing.get_context("forkserver").Lock()
    name = f"sem.{lock._semlock.name[1:]}"  # type: ignore[attr-defined]
    assert name in {name for name, _ in shared_memory.mapped_by([os.getpid()])}
    shared_memory.remove({segment for segment in shared_memory.present() if segment[0] == name})
    shared_memory.remove_forsaken(set())
    assert Path(f"/dev/shm/{name}").exists()
