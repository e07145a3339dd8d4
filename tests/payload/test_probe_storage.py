"""probes/storage.py as a node runs it: where it may write, what fio measures, and that nothing is left."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.facts.parsers.linux.load import parse_fio
from nodectl.payload.common.folders import LOCK
from nodectl.payload.common.frames import texts
from nodectl.payload.probes import storage as place

ARGV = [sys.executable, "-B", str(payload_dir() / "run.py"), "probes.storage"]
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
JOBS = ["sequential write", "sequential read", "random read", "small files write"]
MIB = 1 << 20


def plan(path: Path, *more: str) -> list[str]:
    return [*ARGV, "measure", f"--path={path}", "--runs=1", f"--bytes={32 * MIB}", "--engine=psync", *more]


def run(argv: list[str], **env: str) -> "subprocess.CompletedProcess[str]":
    own = {**os.environ, **env}
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=own)


def events(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts(done.stdout)]


@needs_fio
def test_every_job_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    done = run(plan(tmp_path, "--seconds=0.1", "--direct=0"))
    assert done.returncode == 0, done.stdout + done.stderr
    size, *told = events(done)
    assert size == {"event": "size", "bytes": 32 * MIB}
    assert [each["job"] for each in told] == JOBS
    jobs = [parse_fio(each["text"]).jobs for each in told]
    assert all(len(each) == 1 and each[0].error == 0 for each in jobs)
    assert (jobs[0][0].write_mib_s or 0) > 0 and (jobs[1][0].read_mib_s or 0) > 0
    assert (jobs[2][0].read_iops or 0) > 0 and (jobs[3][0].write_iops or 0) > 0
    assert list(tmp_path.iterdir()) == []


@needs_fio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "made for it"
    argv = plan(folder, "--seconds=20", "--direct=0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        until = time.monotonic() + 30
        while not list(folder.glob(".nodectl-storage-*/data")) and time.monotonic() < until:
            time.sleep(0.02)
        assert list(folder.glob(".nodectl-storage-*/data"))
        process.send_signal(number)
        assert process.wait(20) != 0
        with pytest.raises(ProcessLookupError):  # fio has ended with it
            os.killpg(process.pid, 0)
    assert not folder.exists()


def test_what_a_killed_measurement_left_is_removed_and_a_running_one_is_not(tmp_path: Path) -> None:
    left, running = tmp_path / f"{place.PREFIX}left", tmp_path / f"{place.PREFIX}running"
    others = tmp_path / ".nodectl-storage-another.host-1"
    for folder in (left, running, others):
        folder.mkdir()
        (folder / "data").write_text("x")
    with (running / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run([*ARGV, "look", f"--path={tmp_path}"]).returncode == 0
    assert sorted(tmp_path.iterdir()) == sorted([running, others])


def statvfs(free_mib: int, total_mib: int, files: int = 10**6) -> os.statvfs_result:
    blocks = (total_mib, free_mib, free_mib)
    return os.statvfs_result((MIB, MIB, *blocks, files, files, files, 0, 255))


@pytest.mark.parametrize(
    ("info", "mib"),
    [
        (statvfs(100_000, 200_000), 40_000),
        (statvfs(2_000, 8_000), 600),
        # of a large disk 50 GiB stay free, not a tenth of it
        (statvfs(100_000, 10_000_000), 24_400),
        (statvfs(1_000, 2_000), 244),
    ],
)
def test_what_may_be_written(monkeypatch: pytest.MonkeyPatch, info: os.statvfs_result, mib: int) -> None:
    monkeypatch.setattr("nodectl.payload.probes.storage.os.statvfs", lambda _: info)
    assert place.room(Path("/")) // MIB == mib
