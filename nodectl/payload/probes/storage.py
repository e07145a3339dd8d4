"""Reads and writes on a folder of this host by fio: `look` says what may be done there, `measure` does it.

Files lie in a folder of their own below it, which goes when this program ends, also by a signal; one that it could not
remove (SIGKILL, a crash) is removed by the next `look`.
"""

import argparse
import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from ..common import machine, program
from ..common.events import say
from ..common.folders import own_folder, remove_stale
from ..jobs.folder import state_root

MIB = 1 << 20
# of this host: a folder may be the same on all of them
PREFIX = ".nodectl-storage-%s-" % os.uname().nodename
DIRECT = getattr(os, "O_DIRECT", 0)
LEAST_BYTES = 16 * MIB
LEAST_FILES = 20000
# of the file system, what stays free; and what a measurement may take of the rest
KEEP_PART = 0.1
KEEP_BYTES = 512 * MIB
KEEP_MOST_BYTES = 100 * KEEP_BYTES
TAKE_PART = 0.5
SLACK_S = 30.0
SMALL_BYTES = 16 << 10
SMALL_FILES = 10000


def target(path: str) -> Path:
    """Return the folder asked for, or where checkpoints lie that nodectl keeps on this host."""
    return Path(path) if path else Path(state_root()) / "checkpoints"


def room(path: Path) -> int:
    """Bytes that may be written; RuntimeError where the file system is nearly full."""
    info = os.statvfs(str(path))
    free, total = info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize
    # a large disk need not keep a tenth of itself for the sake of a small file
    keep = max(KEEP_BYTES, min(int(KEEP_PART * total), KEEP_MOST_BYTES))
    most = int(TAKE_PART * (free - keep))
    files = info.f_files == 0 or info.f_favail > LEAST_FILES
    if most < LEAST_BYTES or not files:
        what = "%d of %d MiB are free" % (free // MIB, total // MIB) if files else "%d inodes are free" % info.f_favail
        raise RuntimeError("the file system of %s is nearly full: %s" % (path, what))
    return most


def takes_direct(folder: Path) -> bool:
    """Return whether its file system lets programs go past the page cache."""
    path = folder / "direct"
    try:
        os.close(os.open(str(path), os.O_WRONLY | os.O_CREAT | DIRECT, 0o600))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return bool(DIRECT)


def mount_of(path: Path) -> Tuple[str, str]:
    """(source, type) of the file system that holds the path."""
    real = str(path.resolve())
    best: Tuple[str, str, str] = ("", "", "")
    with Path("/proc/self/mounts").open(encoding="utf-8", errors="replace") as table:
        for line in table:
            source, point, kind = (word.replace("\\040", " ") for word in line.split()[:3])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[1]):
                best = (source, point, kind)
    return best[0], best[2]


def fio_version() -> Optional[str]:
    """Return None where it is not installed."""
    program = shutil.which("fio")
    if not program:
        return None
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20).stdout
    return text.decode(errors="replace").strip()


def engine() -> str:
    """Asynchronous input and output where fio was built with it."""
    done = subprocess.run(["fio", "--enghelp"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    return "libaio" if b"libaio" in done.stdout.split() else "psync"


def look(options: argparse.Namespace) -> None:
    """Say what may be measured there; RuntimeError where the folder that was asked for is not there."""
    parent = target(options.path)
    if options.path and not parent.is_dir():
        raise RuntimeError("%s is not a folder there" % parent)
    version = fio_version()
    if parent.is_dir():
        remove_stale(parent, PREFIX)
    with own_folder(parent, PREFIX) as folder:
        most, direct = room(folder), takes_direct(folder)
        source, kind = mount_of(folder)
    say(
        event="ready",
        fio=version,
        engine=engine() if version else "",
        path=str(parent),
        room_bytes=most,
        direct=direct,
        source=source,
        file_system=kind,
        machine=machine.boot_id(),
    )


def jobs(folder: Path, options: argparse.Namespace, size: int) -> Iterator[Tuple[str, List[str]]]:
    """(name, fio's arguments) of each job; one may build upon the one before it."""
    data = folder / "data"
    one = ["--filename=%s" % data, "--fallocate=none", "--direct=%d" % options.direct, "--ioengine=%s" % options.engine]
    wide = [*one, "--bs=1M", "--iodepth=16"]
    # no longer than the time, and no more than the size: a slow disk is not filled for minutes
    yield "sequential write", [*wide, "--rw=write", "--size=%d" % size, "--end_fsync=1"]
    written = data.stat().st_size // MIB * MIB
    if not written:
        raise RuntimeError("nothing was written to %s within %g s" % (data.parent, options.seconds))
    again = ["--size=%d" % written, "--time_based=1"]
    yield "sequential read", [*wide, "--rw=read", *again]
    yield "random read", [*one, "--bs=4k", "--iodepth=32", "--rw=randread", "--randrepeat=1", *again]
    data.unlink()
    small = folder / "small"
    small.mkdir()
    sizes = ["--filesize=%d" % SMALL_BYTES, "--bs=%d" % SMALL_BYTES, "--nrfiles=%d" % SMALL_FILES, "--openfiles=16"]
    files = ["--directory=%s" % small, "--create_on_open=1", "--file_service_type=sequential", "--fallocate=none"]
    yield "small files write", [*files, *sizes, "--rw=write", "--ioengine=psync", "--fsync=1"]
    shutil.rmtree(str(small))


def run_fio(name: str, job: List[str], seconds: float) -> None:
    """Say what fio printed of one job; RuntimeError where it failed or did not end in time."""
    argv = ["fio", "--output-format=json", "--name=%s" % name.replace(" ", "-"), "--runtime=%dms" % (1000 * seconds)]
    # threads: a process for each job would leave our process group
    argv += ["--thread=1", "--group_reporting=1", "--lat_percentiles=1", *job]
    try:
        # killed and waited for however this ends, for fio could make its files anew
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds + SLACK_S
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError("%s did not end within %g s" % (name, seconds + SLACK_S)) from None
    text, complaint = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()
    if done.returncode:
        last = (complaint or text.strip()).splitlines()[-1:] or ["exit status %d" % done.returncode]
        raise RuntimeError("fio, %s: %s" % (name, last[0]))
    say(event="fio", job=name, text=text)


def measure(options: argparse.Namespace) -> None:
    """Run every job so often as was asked."""
    program.end_by_signals()
    with own_folder(target(options.path), PREFIX) as folder:
        size = min(options.bytes, room(folder)) // MIB * MIB
        say(event="size", bytes=size)
        for _ in range(options.runs):
            for name, job in jobs(folder, options, size):
                run_fio(name, job, options.seconds)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    parser, (looking, measuring) = program.commands(look, measure)
    measuring.add_argument("--seconds", type=float, required=True, help="of one job")
    measuring.add_argument("--runs", type=int, required=True)
    measuring.add_argument("--bytes", type=int, required=True, help="of the large file, at most")
    measuring.add_argument("--engine", required=True)
    measuring.add_argument("--direct", type=int, choices=(0, 1), required=True)
    for command in (looking, measuring):
        command.add_argument("--path", default="", help="default: nodectl's folder of checkpoints")
    return program.run(parser, argv, subprocess.SubprocessError, explain=explained)


def explained(error: Exception) -> Dict[str, str]:
    """Return the `text` of a failure, and the `remedy` where there is one."""
    text, remedy = str(error), ""
    if isinstance(error, OSError) and error.filename:
        text = "%s: %s" % (error.filename, error.strerror)
    if isinstance(error, PermissionError):
        remedy = "name a folder that the login may write to with --path"
    elif "nearly full" in text or getattr(error, "errno", None) == errno.ENOSPC:
        remedy = "make room there, or name another folder with --path"
    return {"text": text, "remedy": remedy}
