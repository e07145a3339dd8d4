"""Measures what the black box costs a healthy job: CPU of the monitor's looks, and of a taking, in shares of a core.

The monitor reads a growing output as the supervisor's thread has it read every 2 s: with steps (8 ranks that print one
each 0.1 s) and without any. A step grows most where rank and monitor share a core: work with a look before it is held
against the same work alone, by CPU time, as a share of the 2 s between two looks.
Last line: {"name": "black_box", "ratios": {...}}; a ratio of 0.005 is 0.5 % of a core.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nodectl.payload.jobs.clerk import EVERY_S
from nodectl.payload.jobs.folder import JobFolder
from nodectl.payload.jobs.outputs import Keeper
from nodectl.payload.jobs.rhythm import Monitor

_LOOKS = 300
_RANKS = 8
_STEPS = 100


def _looks(line: str, count: int) -> Iterator[Callable[[], object]]:
    """Yield so many looks to be called, each after every rank has written 20 lines."""
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_STATE_HOME"] = root
        job = JobFolder("20260101-000000-0001")
        logs = [Path(job.at("ranks", "attempt_0", str(rank), "stdout.log")) for rank in range(_RANKS)]
        for log in logs:
            log.parent.mkdir(parents=True)
        Path(job.at("output.log")).touch()
        Path(job.at("ranks", "only-copy")).touch()
        keeper, monitor = Keeper(job, 1024), Monitor(job, 0.0)
        for number in range(count):
            for log in logs:
                with log.open("a") as file:
                    file.writelines(line.format(number * 20 + at) for at in range(20))
            keeper.tend()  # it is no part of the black box
            yield partial(monitor.look, keeper.size, number * EVERY_S)


def _cpu_s(*works: Callable[[], object]) -> float:
    begun_s = time.thread_time()
    for work in works:
        work()
    return time.thread_time() - begun_s


def _work() -> int:
    """Do what a step does on a core: some 50 ms of computing in memory that caches hold."""
    return sum(number * number for number in range(1_000_000))


def step_time_share(line: str) -> float:
    """Return by which share a step grows on a core that also runs the looks."""
    alone_s = together_s = 0.0
    for look in _looks(line, _STEPS):
        alone_s += _cpu_s(_work)
        together_s += _cpu_s(look, _work)
    return (together_s - alone_s) / _STEPS / EVERY_S


def main() -> None:
    """Measure, and print a line a case."""
    cases = {
        "with steps": "[2026-01-01 00:00:00] step {}/100000 loss 0.5 lr 1e-4 tokens/s 12345\n",
        "without steps": "a line of another kind that says {} and goes on for a while so that it is long\n",
    }
    used_s = {name: sum(_cpu_s(look) for look in _looks(line, _LOOKS)) for name, line in cases.items()}
    shares = {name: used / _LOOKS / EVERY_S for name, used in used_s.items()}
    for name, share in shares.items():
        print(f"{name}: {share * EVERY_S * 1e3:.2f} ms of CPU a look, {share * 100:.3f} % of a core")
    shares["step time"] = step_time_share(cases["with steps"])
    print(f"step time: {shares['step time'] * 100:+.3f} % on a core that a rank and the monitor share")
    print(json.dumps({"name": "black_box", "ratios": {name: round(share, 6) for name, share in shares.items()}}))


if __name__ == "__main__":
    main()
