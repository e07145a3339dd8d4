"""Whether the probes tell the truth.

On a lab that this brings up: tcp beside iperf3 by hand, memory's Triad beside a STREAM in C that is built here. Beside
them what is made of perftest's and nccl-tests' published outputs. Goals: tcp within 2 %, Triad within 10 %; no figure
of perftest's, no kind of a failure and no bus bandwidth that differs.

What is measured is measured in turn, and hosts get real-time priority, so that other work on the machine disturbs probe
and rival alike, and little. Needs root and cc. The last line is one JSON object: `ratios` are the probe's figures over
the others', of several the one that is furthest from 1. Exit status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_lab import lab
from truth_collectives import collectives
from truth_memory import memory
from truth_rdma import rdma
from truth_tcp import tcp

_SAMPLES = Path(__file__).resolve().parent.parent.parent / "shared" / "samples"
_GOALS = {"iperf3": 0.02, "stream_triad": 0.10}


def main() -> int:
    """Measure, compare, print."""
    options = _options()
    document: dict[str, Any] = {"name": "probe_truth", "ratios": {}, "goals": _GOALS}
    missed: list[str] = []
    with lab(2, "--rate", options.rate, real_time=True) as hosts:
        document["real_time"] = hosts.real_time
        document["tcp"] = own = tcp(hosts, options.rounds, options.seconds, (1, 4))
        _show("tcp", own)
        document["ratios"]["iperf3"] = max(own["ratios"].values(), key=lambda ratio: abs(ratio - 1))
        document["memory"] = own = memory(hosts, options.rounds)
        _show("memory", own)
        document["ratios"]["stream_triad"] = own["ratio"]
    document["load"] = os.getloadavg()[0]
    missed += [f"{name}: {ratio:.4f}" for name, ratio in document["ratios"].items() if abs(ratio - 1) > _GOALS[name]]
    for name, read, folder in (("rdma", rdma, options.samples / "rxe"), ("collectives", collectives, options.samples)):
        if not folder.is_dir():
            document[name] = {"skipped": f"no {folder}: give the recorded outputs with --samples"}
        else:
            document[name] = own = read(folder)
            missed += own["wrong"]
        _show(name, document[name])
    for each in missed:
        print(f"missed: {each}")
    document["missed"] = missed
    print(json.dumps(document))
    return int(bool(missed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit", help="of the lab's links")
    parser.add_argument("--rounds", type=int, default=5, help="of measurements in turn; medians count")
    parser.add_argument("--seconds", type=int, default=3, help="of one iperf3 test")
    parser.add_argument("--samples", type=Path, default=_SAMPLES, help="recorded outputs of perftest and nccl-tests")
    return parser.parse_args()


def _show(name: str, found: Mapping[str, object]) -> None:
    print(f"{name}:")
    for key, value in found.items():
        print(f"  {key}: {value}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
