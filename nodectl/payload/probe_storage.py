"""Reads and writes on a folder of this host by fio: `look` says what may be done there, `measure` does it.

Files lie in a folder of their own below it, which goes when this program ends, also by a signal; one that it could not
remove (SIGKILL, a crash) is removed by the next `look`. JSON lines; Python 3.8, standard library.
"""

import argparse
import errno
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.fiobench import folder as place
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from fiobench import folder as place

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MIB = 1 << 20
SLACK_S = 30.0
SMALL_BYTES = 16 << 10
SMALL_FILES = 10000


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def fio_version() -> Optional[str]:
    """None where it is not installed."""
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
    parent = place.target(options.path)
    if options.path and not parent.is_dir():
        raise RuntimeError("%s is not a folder there" % parent)
    version = fio_version()
    if parent.is_dir():
        place.remove_stale(parent)
    with place.own_folder(parent) as folder:
        most, direct = place.room(folder), place.takes_direct(folder)
        source, kind = place.mount_of(folder)
    machine = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
    say(
        event="ready",
        fio=version,
        engine=engine() if version else "",
        path=str(parent),
        room_bytes=most,
        direct=direct,
        source=source,
        file_system=kind,
        machine=machine,
    )


def jobs(folder: Path, options: argparse.Namespace, size: int) -> Iterator[Tuple[str, List[str]]]:
    """(name, what fio is told): each may build upon the one before it."""
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
    files = [
        "--directory=%s" % small,
        "--create_on_open=1",
        "--file_service_type=sequential",
        "--fallocate=none",
        *sizes,
    ]
    yield "small files write", [*files, "--rw=write", "--ioengine=psync", "--fsync=1"]
    shutil.rmtree(str(small))


def run_fio(name: str, told: List[str], options: argparse.Namespace, running: List[Any]) -> None:
    argv = [
        "fio",
        "--output-format=json",
        "--name=%s" % name.replace(" ", "-"),
        "--runtime=%dms" % (1000 * options.seconds),
    ]
    # threads: a process for each job would leave our process group
    argv += ["--thread=1", "--group_reporting=1", "--lat_percentiles=1", *told]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running[:] = [process]
    try:
        out, err = process.communicate(timeout=options.seconds + SLACK_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError("%s did not end within %g s" % (name, options.seconds + SLACK_S)) from None
    finally:
        end(process)
        running[:] = []
    text, complaint = out.decode(errors="replace"), err.decode(errors="replace").strip()
    if process.returncode:
        last = (complaint or text.strip()).splitlines()[-1:] or ["exit status %d" % process.returncode]
        raise RuntimeError("fio, %s: %s" % (name, last[0]))
    say(event="fio", job=name, text=text)


def end(process: Any) -> None:
    """It must be gone before its files are removed, for it could make them anew."""
    if process.poll() is None:
        process.kill()
        process.wait()


def measure(options: argparse.Namespace) -> None:
    running: List[Any] = []

    def stop(*_: Any) -> None:
        raise SystemExit(1)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    parent = place.target(options.path)
    with place.own_folder(parent) as folder:
        size = min(options.bytes, place.room(folder)) // MIB * MIB
        say(event="size", bytes=size)
        try:
            for _ in range(options.runs):
                for name, told in jobs(folder, options, size):
                    run_fio(name, told, options, running)
        finally:
            for process in running:
                end(process)


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    looking = commands.add_parser("look")
    looking.set_defaults(run=look)
    measuring = commands.add_parser("measure")
    measuring.set_defaults(run=measure)
    measuring.add_argument("--seconds", type=float, required=True, help="of one job")
    measuring.add_argument("--runs", type=int, required=True)
    measuring.add_argument("--bytes", type=int, required=True, help="of the large file, at most")
    measuring.add_argument("--engine", required=True)
    measuring.add_argument("--direct", type=int, choices=(0, 1), required=True)
    for command in (looking, measuring):
        command.add_argument("--path", default="", help="default: nodectl's folder of checkpoints")
    options = parser.parse_args(argv)
    try:
        options.run(options)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        say(event="error", **told_of(error))
        return 1
    return 0


def told_of(error: Exception) -> Dict[str, str]:
    text, remedy = str(error), ""
    if isinstance(error, OSError) and error.filename:
        text = "%s: %s" % (error.filename, error.strerror)
    if isinstance(error, PermissionError):
        remedy = "name a folder that the login may write to with --path"
    elif "nearly full" in text or getattr(error, "errno", None) == errno.ENOSPC:
        remedy = "make room there, or name another folder with --path"
    return {"text": text, "remedy": remedy}


if __name__ == "__main__":
    sys.exit(main())
