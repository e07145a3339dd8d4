"""All pairs of 16 lab hosts with `nodectl probe tcp`, against the time that a single pair takes.

The goal: in all at most 1.15 times (rounds x one pair's time). One pair's time is read inside a nodectl that runs: it
stands in the conditions of each measurement (`wall_s`), here of a pair that is measured alone. Total is the wall time
of the whole command, its start, the hosts' locks and the first copy of the programs included. Needs root. The last
line is one JSON object; exit status 1 if the goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from statistics import median
from typing import Any

from bench_lab import Lab, lab

_GOAL = 1.15


def measured(lab: Lab, seconds: int, *hosts: str) -> tuple[float, list[dict[str, Any]]]:
    """Measure all pairs of these hosts, or of all; return the wall time of the command, and what it measured."""
    began = time.monotonic()
    document = lab.probe("tcp", "--rounds", "all", "--duration", str(seconds), "--repetitions", "1", limit=hosts)
    return time.monotonic() - began, document["measurements"]


def compared(lab: Lab, seconds: int) -> dict[str, Any]:
    """Measure one pair alone, then all of them."""
    hosts = len(lab.hosts)
    _, alone = measured(lab, seconds, *lab.hosts[:2])
    pair_s = alone[0]["conditions"]["wall_s"]
    total_s, found = measured(lab, seconds)
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
    with lab(options.hosts, "--rate", options.rate) as hosts:
        found = compared(hosts, options.seconds)
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
