"""The tcp probe beside iperf3 that is run by hand between the same two hosts, in turn."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from typing import Any

from bench_lab import Lab

_PORT = 5999
_WAIT_S = 10.0
Way = tuple[str, int]


def tcp(lab: Lab, rounds: int, seconds: int, streams: tuple[int, ...]) -> dict[str, Any]:
    """Medians of both by direction and number of streams, in Gbit/s, and their ratios."""
    by_hand: dict[Way, list[float]] = defaultdict(list)
    by_probe: dict[Way, list[float]] = defaultdict(list)
    for number in range(rounds):
        for count in streams:
            # who comes first changes, so that a drift of the machine helps neither
            turns = [_by_hand, _by_probe] if number % 2 else [_by_probe, _by_hand]
            for turn in turns:
                kept = by_hand if turn is _by_hand else by_probe
                for way, rate in turn(lab, seconds, count).items():
                    kept[way, count].append(rate)
    ratios = {f"{way}, {count} streams": median(by_probe[way, count]) / median(by_hand[way, count])
              for way, count in by_hand}  # fmt: skip
    return {"by_hand_gbit_s": _medians(by_hand), "by_probe_gbit_s": _medians(by_probe), "ratios": ratios}


def _medians(rates: Mapping[Way, list[float]]) -> dict[str, float]:
    return {f"{way}, {count} streams": round(median(own), 6) for (way, count), own in rates.items()}


def _by_probe(lab: Lab, seconds: int, streams: int) -> dict[str, float]:
    first, second = lab.hosts[:2]
    options = ("--duration", str(seconds), "--repetitions", "1", "--streams", str(streams))
    found = lab.probe("tcp", *options, limit=(first, second))
    return {each["direction"]: each["value"] for each in found["measurements"]}


def _by_hand(lab: Lab, seconds: int, streams: int) -> dict[str, float]:
    """Measure as an operator does: a server on one host, a client on the other, and what the receiver counted."""
    first, second = lab.hosts[:2]
    rates = {}
    for direction, reverse in ((f"{first} -> {second}", ""), (f"{second} -> {first}", " -R")):
        address = lab.addresses[second]
        server = subprocess.Popen(lab.argv(second, f"iperf3 -s -1 -B {address} -p {_PORT}"), stdout=subprocess.DEVNULL)
        try:
            _wait_for(lab, second)
            client = f"iperf3 -c {address} -p {_PORT} -t {seconds} -P {streams} -J{reverse}"
            end = json.loads(lab.ssh(first, client))["end"]
            rates[direction] = end["sum_received"]["bits_per_second"] / 1e9
            server.wait(_WAIT_S)
        finally:
            server.kill()
    return rates


def _wait_for(lab: Lab, host: str) -> None:
    """Wait until it listens."""
    until = time.monotonic() + _WAIT_S
    while not lab.ssh(host, f"ss -Hltn sport = :{_PORT}").strip():
        if time.monotonic() > until:
            sys.exit(f"iperf3 does not listen on {host}")
        time.sleep(0.1)
