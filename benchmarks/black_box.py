"""Measures what the black box costs a healthy job: CPU of the monitor's looks, and of a taking, in shares of a core.

The monitor reads a growing output as the supervisor's thread has it read every 2 s: with steps (8 ranks that print one
each 0.1 s) and without any. Last line: {"name": "black_box", "ratios": {...}}; a ratio of 0.005 is 0.5 % of a core.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nodectl.payload.jobs.clerk import EVERY_S
from nodectl.payload.jobs.folder import JobFolder
from nodectl.payload.jobs.outputs import Keeper
from nodectl.payload.jobs.rhythm import Monitor

_LOOKS = 300
_RANKS = 8


def cpu_per_look_s(line: str) -> float:
    """Return the seconds of CPU of one look, of the mean of many, while each rank writes 20 lines between two."""
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_STATE_HOME"] = root
        job = JobFolder("20260101-000000-0001")
        logs = [Path(job.at("ranks", "attempt_0", str(rank), "stdout.log")) for rank in range(_RANKS)]
        for log in logs:
            log.parent.mkdir(parents=True)
        Path(job.at("output.log")).touch()
        Path(job.at("ranks", "only-copy")).touch()
        keeper, used_s = Keeper(job, 1024), 0.0
        monitor = Monitor(job, 0.0)
        for look in range(_LOOKS):
            for log in logs:
                with log.open("a") as file:
                    file.writelines(line.format(look * 20 + number) for number in range(20))
            keeper.tend()  # it is no part of the black box
            begun_s = time.thread_time()
            monitor.look(keeper.size, look * EVERY_S)
            used_s += time.thread_time() - begun_s
    return used_s / _LOOKS


def main() -> None:
    """Measure, and print a line a case."""
    cases = {
        "with steps": "[2026-01-01 00:00:00] step {}/100000 loss 0.5 lr 1e-4 tokens/s 12345\n",
        "without steps": "a line of another kind that says {} and goes on for a while so that it is long\n",
    }
    shares = {name: cpu_per_look_s(line) / EVERY_S for name, line in cases.items()}
    for name, share in shares.items():
        print(f"{name}: {share * EVERY_S * 1e3:.2f} ms of CPU a look, {share * 100:.3f} % of a core")
    print(json.dumps({"name": "black_box", "ratios": {name: round(share, 6) for name, share in shares.items()}}))


if __name__ == "__main__":
    main()
