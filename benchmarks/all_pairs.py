"""All pairs of 16 lab hosts with `nodectl probe tcp`, against the time that a single pair takes.

The goal: in all at most 1.15 times (rounds x one pair's time). One pair's time is read inside a nodectl that runs: it
stands in the conditions of each measurement (`wall_s`), here of a pair that is measured alone. Total is the wall time
of the whole command, its start, the hosts' locks and the first copy of the programs included. Needs root. The last
line is one JSON object; exit status 1 where the goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_GOAL = 1.15
_LAB = "bench-all-pairs"


def nodectl(env: dict[str, str], *args: str) -> str:
    """What it printed; its complaint where it failed."""
    argv = [sys.executable, "-m", "nodectl", *args]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"nodectl {' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def measured(env: dict[str, str], inventory: str, pairs: str, seconds: int) -> tuple[float, list[dict[str, Any]]]:
    """(wall time of the command, what it measured), each direction once."""
    began = time.monotonic()
    options = ("--pairs", pairs, "--duration", str(seconds), "--repetitions", "1")
    found = json.loads(nodectl(env, "-i", inventory, "--output", "json", "probe", "tcp", *options))
    return time.monotonic() - began, found["measurements"]


def compared(env: dict[str, str], inventory: str, hosts: int, seconds: int) -> dict[str, Any]:
    """One pair alone, then all of them."""
    _, alone = measured(env, inventory, "first", seconds)
    pair_s = alone[0]["conditions"]["wall_s"]
    total_s, found = measured(env, inventory, "all", seconds)
    rounds = hosts - 1 + hosts % 2
    walls = [each["conditions"]["wall_s"] for each in found]
    return {
        "pairs": len({frozenset(each["hosts"]) for each in found}),
        "measured_again": sum("again" in each["conditions"] for each in found),
        "rounds": rounds,
        "seconds": seconds,
        "pair_alone_s": pair_s,
        "pair_in_all_s": median(walls),
        "slowest_pair_s": max(walls),
        "total_s": total_s,
        "least_gbit_s": min(each["value"] for each in found),
        "ratio": total_s / (rounds * pair_s),
    }


def main() -> int:
    """Bring a lab up, measure, take it down, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--seconds", type=int, default=5, help="of each direction of a pair")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("a lab needs root")
    with tempfile.TemporaryDirectory(prefix="all-pairs-") as state:
        env = {**os.environ, "XDG_STATE_HOME": state, "PYTHONPATH": str(_ROOT)}
        inventory = nodectl(env, "lab", "up", "-n", str(options.hosts), "--rate", options.rate, "--name", _LAB).strip()
        try:
            found = compared(env, inventory, options.hosts, options.seconds)
        finally:
            nodectl(env, "lab", "down", "--name", _LAB)
    ratio = found.pop("ratio")
    load = os.getloadavg()[0]
    print(
        f"{found['pairs']} pairs in {found['rounds']} rounds: {found['total_s']:.1f} s; a pair alone "
        f"{found['pair_alone_s']:.2f} s, among the others {found['pair_in_all_s']:.2f} s (slowest "
        f"{found['slowest_pair_s']:.2f} s): {ratio:.3f} of rounds x one pair; load {load:.1f}"
    )
    document = {"name": "all_pairs", "ratios": {"all_pairs": ratio}, "goal": _GOAL, "load": load, **found}
    print(json.dumps(document))
    return int(ratio > _GOAL)


if __name__ == "__main__":
    sys.exit(main())
