"""The article's preprocessing of table files on this host: parquet, fillna, get_dummies, by pools of several sizes.

`look` says what this Python has for it, `measure` does it. Files lie in a folder of their own below nodectl's, which
goes when this program ends, also by a signal; one that it could not remove is removed by the next `look`.
"""

import argparse
import math
import multiprocessing
import os
import re
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ..common import machine, program
from ..common.folders import own_folder, remove_stale
from ..common.frames import say
from ..jobs.folder import state_root

PREFIX = "preprocess-%s-" % os.uname().nodename
# of a file: numbers, of which one in ten is missing, and words of so many kinds, each of which becomes a column
NUMBERS, WORDS, KINDS, MISSING = 8, 4, 8, 10
COLUMNS = NUMBERS + WORDS * KINDS
VALUE_BYTES = 4
# what pandas takes on the way, over what comes out
TIMES = 4
MEMORY_PART = 0.5


class Case(NamedTuple):
    """So many files by a pool of so many threads or processes."""

    mode: str
    files: int
    workers: int


def preprocess(path: str) -> Any:
    """Prepare a file as the article does; its `.values` would be Python objects, for some columns are booleans."""
    import pandas

    frame = pandas.read_parquet(path)
    frame = frame.fillna(0)
    return pandas.get_dummies(frame).to_numpy(dtype="float32")


def make_file(path: Path, rows: int, seed: int) -> None:
    """Write a file that is the same on every host."""
    import numpy
    import pandas

    random = numpy.random.default_rng(seed)
    columns = {}
    for number in range(NUMBERS):
        values = random.standard_normal(rows)
        values[random.integers(0, MISSING, rows) == 0] = numpy.nan
        columns["number%d" % number] = values
    kinds = numpy.array(["kind%d" % kind for kind in range(KINDS)], dtype=object)
    for number in range(WORDS):
        # each kind at least once, so that every file has the same columns
        drawn = random.integers(0, KINDS, rows)
        drawn[:KINDS] = range(KINDS)
        columns["word%d" % number] = kinds[drawn]
    pandas.DataFrame(columns).to_parquet(str(path))


def pool(case: Case) -> Executor:
    """Return a pool; processes come from a server that has pandas loaded, for a fork of one with threads may hang."""
    if case.mode == "threads":
        return ThreadPoolExecutor(case.workers)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pandas", "pyarrow.parquet"])
    return ProcessPoolExecutor(case.workers, mp_context=context)


def seconds(case: Case, paths: List[str], expected: List[float]) -> float:
    """Return the seconds from an empty pool to all results; RuntimeError if one differs from a process alone."""
    began = time.perf_counter()
    with pool(case) as executor:
        results = list(executor.map(preprocess, paths[: case.files]))
    took = time.perf_counter() - began
    for number, result in enumerate(results):
        path, right = paths[number], expected[number]
        if not math.isclose(checksum(result), right, rel_tol=1e-6, abs_tol=1e-6):
            raise RuntimeError("%s of %d %s came out otherwise than before" % (path, case.workers, case.mode))
    return took


def checksum(values: Any) -> float:
    """Return a sum of all values of a result, and of its shape."""
    total: float = values.astype("float64").sum() + 1e3 * values.shape[1]
    return float(total)


def room(files: int, rows: int) -> None:
    """Raise MemoryError if the results of all files would take more than half of what is free."""
    free, wanted = machine.available_bytes(), TIMES * files * rows * COLUMNS * VALUE_BYTES
    if free is not None and wanted > MEMORY_PART * free:
        raise MemoryError(
            "%d files of %d rows take %.1f GiB, and %.1f GiB are free; it gets half of that: take fewer --rows"
            % (files, rows, wanted / 2**30, free / 2**30)
        )


def versions() -> Dict[str, Optional[str]]:
    """Return the versions of what is needed; None for what this Python has not."""
    by_package: Dict[str, Optional[str]] = {}
    for name in ("pandas", "pyarrow"):
        try:
            by_package[name] = __import__(name).__version__
        except ImportError:
            by_package[name] = None
    return by_package


def cpu_model() -> str:
    """Return the processor's name; empty if the kernel tells none."""
    match = re.search(r"^model name\s*:\s*(.+)$", machine.text(Path("/proc/cpuinfo")), re.MULTILINE)
    return match[1] if match else ""


def look(_: argparse.Namespace) -> None:
    """Say what this host has."""
    parent = Path(state_root())
    if parent.is_dir():
        remove_stale(parent, PREFIX)
    cpus = len(os.sched_getaffinity(0))
    say(event="ready", cpus=cpus, cpu=cpu_model(), machine=machine.boot_id(), **versions())


def measure(options: argparse.Namespace) -> None:
    """Every case in turn, so often as was asked: what drifts touches all of them alike.

    A round that would end after `seconds` is not begun, but for the first.
    """
    program.end_by_signals()
    cases = [
        Case(mode, int(files), int(workers)) for mode, files, workers in (triple.split(":") for triple in options.cases)
    ]
    most = max(case.files for case in cases)
    room(most, options.rows)
    with own_folder(Path(state_root()), PREFIX) as folder:
        paths = [folder / ("data%d.parquet" % number) for number in range(1, most + 1)]
        for number, path in enumerate(paths):
            make_file(path, options.rows, number)
        texts = [str(path) for path in paths]
        # also the warm-up: imports, and the files in the page cache
        expected = [checksum(preprocess(text)) for text in texts]
        say(event="files", files=most, bytes=sum(path.stat().st_size for path in paths), columns=COLUMNS)
        began = time.monotonic()
        for done in range(options.repetitions):
            passed = time.monotonic() - began
            if done and passed * (1 + 1 / done) > options.seconds:
                break
            for case in cases:
                say(
                    event="timed",
                    mode=case.mode,
                    files=case.files,
                    workers=case.workers,
                    seconds=round(seconds(case, texts, expected), 6),
                )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    parser, (_, measuring) = program.commands(look, measure)
    measuring.add_argument("--rows", type=int, required=True, help="of a file")
    measuring.add_argument("--repetitions", type=int, required=True)
    measuring.add_argument("--seconds", type=float, default=math.inf, help="for all repetitions")
    measuring.add_argument("cases", nargs="+", help="MODE:FILES:WORKERS")
    return program.run(parser, argv, MemoryError)
