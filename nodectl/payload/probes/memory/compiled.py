"""Copy and triad by a small C program, compiled where it runs."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List

from .rates import Rates

ARRAYS = 3
_SOURCE = Path(__file__).with_name("stream.c")
_COMPILE_S = 60.0
_SLACK_S = 60.0
_TRIAL_BYTES = 1 << 16


def can() -> bool:
    """There is a compiler, and what it makes may be run here."""
    if shutil.which("cc") is None:
        return False
    try:
        return bool(measure(sorted(os.sched_getaffinity(0))[:1], _TRIAL_BYTES, 0.001, 1))
    except (RuntimeError, OSError):
        return False


def measure(cpus: List[int], size_bytes: int, seconds: float, repetitions: int) -> Dict[str, List[Rates]]:
    """GB/s of each repetition and pass, by kernel; RuntimeError in the compiler's or the program's words."""
    with tempfile.TemporaryDirectory(prefix="nodectl-memory-") as folder:
        program = Path(folder) / "stream"
        _compile(program)
        words = [str(size_bytes), "%g" % seconds, str(repetitions), ",".join(map(str, cpus))]
        # a host with little processor time needs long to touch its pages
        output = _run([str(program), *words], 4 * seconds * repetitions + _SLACK_S)
    rates: Dict[str, List[Rates]] = {}
    for line in output.splitlines():
        kernel, whole, *passes = line.split()
        rates.setdefault(kernel, []).append(Rates(float(whole), list(map(float, passes))))
    return rates


def _compile(program: Path) -> None:
    argv = ["cc", "-O3", "-std=gnu11", "-pthread", "-o", str(program), str(_SOURCE)]
    try:
        _run([*argv, "-march=native"], _COMPILE_S)
    except RuntimeError:  # not every compiler knows its machine
        _run(argv, _COMPILE_S)


def _run(argv: List[str], deadline_s: float) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=deadline_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError("%s: %s" % (Path(argv[0]).name, error)) from error
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip().splitlines()
        last = complaint[-1] if complaint else "ended with %d" % done.returncode
        raise RuntimeError("%s: %s" % (Path(argv[0]).name, last))
    return done.stdout.decode()
