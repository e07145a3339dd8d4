"""NVIDIA Nsight Systems on a node: where it is, how it wraps a rank, and the events of its report, read as CSV.

What is recorded is the window that the rank opens and closes (in_rank/nodectl_trace.py), by CUDA's profiler API.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import itertools
import os
import shutil
import subprocess
from typing import IO, Dict, Iterator, List

from .chrome_trace import Event, TraceError

_PLACES = ("/usr/local/cuda/bin/nsys", "/opt/nvidia/nsight-systems*/*/bin/nsys")
_OPTIONS = (
    "--trace=cuda,nvtx",
    "--sample=none",
    "--cpuctxsw=none",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--force-overwrite=true",
)
_REPORTS = ("nvtx_pushpop_trace", "cuda_gpu_trace")
_STATS_S = 600.0
_LONGEST_LINE = 64 << 10
_MOST_ROWS = 20_000_000
_MOST_NS = 1e18


def find() -> str:
    """Its path; empty where it is not installed."""
    there = shutil.which("nsys")
    if there:
        return there
    programs = sorted(path for place in _PLACES for path in glob.glob(place) if os.access(path, os.X_OK))
    return programs[-1] if programs else ""


def argv(program: str, output: str) -> List[str]:
    """Return what stands in front of a rank's command line; `output` is the report without its ending."""
    return [program, "profile", *_OPTIONS, f"--output={output}"]


def environment() -> Dict[str, str]:
    """Return what torchrun's launcher is to know, so that it starts each rank under nsys; empty where there is none."""
    program = find()
    if not program:
        return {}
    wrapper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "with_nsys.sh")
    return {"PYTHON_EXEC": wrapper, "NODECTL_NSYS": program, "NODECTL_NSYS_OPTIONS": " ".join(_OPTIONS)}


def read_events(path: str) -> Iterator[Event]:
    """Yield steps, kernels and copies of a .nsys-rep; raise TraceError with nsys's own words where it cannot."""
    program = find()
    if not program:
        raise TraceError("nsys is not installed here any more")
    try:
        for report in _REPORTS:
            yield from _report(program, report, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.splitext(path)[0] + ".sqlite")


def _report(program: str, report: str, path: str) -> Iterator[Event]:
    argv = [program, "stats", f"--report={report}", "--format=csv", "--output=-", "--force-export=true", path]
    process = subprocess.Popen(
        ["timeout", f"{_STATS_S:g}", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with process, io.TextIOWrapper(process.stdout or io.BytesIO(), "utf-8", "replace") as text:
        try:
            yield from read_csv(text, report)
        finally:
            process.kill()


def read_csv(text: IO[str], report: str) -> Iterator[Event]:
    """Yield the rows of one report, behind whatever nsys says before; raise TraceError for none, or a damaged one."""
    lines = iter(lambda: text.readline(_LONGEST_LINE), "")
    last_line, head = "nothing", ""
    for line in lines:
        if line.startswith("Start (ns),"):
            head = line
            break
        last_line = line.strip() or last_line
    if not head:
        raise TraceError(f"nsys stats --report={report} gives no table: {last_line[:200]}")
    try:
        for row in csv.DictReader(itertools.chain([head], itertools.islice(lines, _MOST_ROWS))):
            if row.get("Start (ns)") and row.get("Duration (ns)"):
                yield _event(row)
    except (csv.Error, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"nsys's table {report} cannot be read: {error}") from error


def _event(row: Dict[str, str]) -> Event:
    begin_ns, duration_ns = int(row["Start (ns)"]), int(row["Duration (ns)"])
    if not (abs(begin_ns) < _MOST_NS and 0 <= duration_ns < _MOST_NS):
        raise ValueError(f"a time of {begin_ns} and {duration_ns} ns")
    name = row["Name"]
    kind = "user_annotation" if "RangeId" in row else "kernel"
    if "CUDA memcpy" in name or "CUDA memset" in name:
        kind = "gpu_memcpy"
    # of the default domain a range's name begins with a colon
    return Event(kind, name.lstrip(":"), begin_ns / 1000, (begin_ns + duration_ns) / 1000)
