"""Blame on simulated fleets: how often it is right, and how often somebody healthy is blamed.

Each scenario is a fleet of its own (noise of 1 to 5 %, bursts, hosts that are not there) with a slow host, a host slow
one way, a slow path, a slow direction, two of these, or none; slow by 20 to 95 %. It is measured in sampled rounds, or
in all of a small fleet's, then inquired into as `nodectl probe tcp` does. The last line is one JSON object; `ratios`
are the part that was wrong over the 3 % that may be, and the part of scenarios in which somebody healthy was blamed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

_ALLOWED_WRONG = 0.03


def one(task: tuple[str, int, int | None, int]) -> tuple[str, bool, bool, int, str]:
    """(kind, right, false blame, rounds, description) of one scenario."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.probes.blame.simulated import scenario

    kind, hosts, rounds, seed = task
    case = scenario(kind, hosts, rounds, seed)
    faults = {cause: round(left, 2) for cause, left in case.fleet.faults.items()}
    said = [each.suspect.cause for each in case.verdict.blamed]
    told = "" if case.right else f"seed {seed}: noise {case.fleet.noise:.3f}, {faults}: blamed {said}"
    return kind, case.right, case.false_blame, case.fleet.measured, told


def main() -> None:
    """Run the scenarios and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=1000, help="0: 8 to 16 in turn")
    parser.add_argument("--rounds", default="log", help="sampled rounds: a number, log (log2 of the hosts) or all")
    parser.add_argument("--seed", type=int, default=0, help="of the first scenario")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.probes.blame.simulated import KINDS

    tasks = []
    for seed in range(options.seed, options.seed + options.scenarios):
        hosts = options.hosts or 8 + seed % 9
        rounds = math.ceil(math.log2(hosts)) if options.rounds == "log" else options.rounds
        tasks.append((KINDS[seed % len(KINDS)], hosts, None if rounds == "all" else int(rounds), seed))
    began, false, measured = time.monotonic(), 0, 0
    counts: Counter[str] = Counter()
    right: Counter[str] = Counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind, good, blamed, taken, told in pool.map(one, tasks, chunksize=4):
            counts[kind] += 1
            right[kind] += int(good)
            false += blamed
            measured += taken
            if told:
                print(told, flush=True)
    for kind in KINDS:
        print(f"{kind:<10} {right[kind]:>5} of {counts[kind]}")
    total, correct = sum(counts.values()), sum(right.values())
    print(f"{total} scenarios in {time.monotonic() - began:.0f} s, {measured / total:.1f} rounds each")
    document = {
        "name": "blame",
        "ratios": {"wrong": (1 - correct / total) / _ALLOWED_WRONG, "false_blame": false / total},
        "scenarios": total,
        "hosts": options.hosts or "8 to 16",
        "right": correct,
        "false_blame": false,
        "rounds": measured / total,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
