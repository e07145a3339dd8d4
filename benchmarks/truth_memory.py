"""The memory probe's Triad beside a STREAM in C that is built here and run on the same host, in turn."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench_lab import Lab

_SOURCE = Path(__file__).with_name("stream.c")
_PASSES = 11  # the first does not count
_MIB = 1 << 20
# `cc -O3 -fopenmp` with the machine's own instructions, as the probe is built; without them it is told beside it
_BUILDS = {"native": ("-march=native",), "plain": ()}


def memory(lab: Lab, rounds: int) -> dict[str, Any]:
    """Medians of both in GB/s, and the ratio."""
    if shutil.which("cc") is None:
        sys.exit("a STREAM has to be built: install cc")
    host = lab.hosts[0]
    for build, flags in _BUILDS.items():
        lab.ssh(host, f"cat > /tmp/stream-{build} && chmod 755 /tmp/stream-{build}", _compiled(flags))
    conditions = _by_probe(lab, host)[1]
    cpus = _cores(lab, host)[: conditions["threads"]]
    elements = max(conditions["array_mib"], 4 * round(conditions["cache_mib"])) * _MIB // 8
    probed: list[float] = []
    streamed: dict[str, list[float]] = {build: [] for build in _BUILDS}
    for number in range(rounds):
        if number % 2:
            probed.append(_by_probe(lab, host)[0])
        for build in _BUILDS:
            streamed[build].append(_by_stream(lab, host, build, elements, cpus))
        if not number % 2:
            probed.append(_by_probe(lab, host)[0])
    medians = {build: median(own) for build, own in streamed.items()}
    return {
        "probe_gb_s": median(probed),
        "stream_gb_s": medians["native"],
        "stream_plain_gb_s": medians["plain"],
        "ratio": _paired(probed, streamed["native"]),
        "ratio_plain": _paired(probed, streamed["plain"]),
        "probe_runs_gb_s": probed,
        "stream_runs_gb_s": streamed["native"],
        "method": conditions["method"],
        "threads": len(cpus),
        "array_mib": elements * 8 // _MIB,
        "cache_mib": conditions["cache_mib"],
    }


def _paired(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the median of each round's ratio: what a machine's neighbours take changes from minute to minute."""
    return median(a / b for a, b in zip(first, second, strict=True))


def _compiled(flags: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "stream"
        subprocess.run(["cc", "-O3", "-fopenmp", *flags, "-o", program, _SOURCE, "-lm"], check=True)
        return program.read_bytes()


def _by_probe(lab: Lab, host: str) -> tuple[float, dict[str, int]]:
    """(Triad over all cores, its conditions)."""
    found = lab.probe("memory", limit=(host,))
    for each in found["measurements"]:
        if each["conditions"]["kernel"] == "triad" and each["conditions"]["numa"] is None:
            return each["value"], each["conditions"]
    sys.exit(f"the probe measured no Triad: {found['findings']}")


def _cores(lab: Lab, host: str) -> list[int]:
    """Return a processor of each core, in their order: those that the probe's threads are pinned to."""
    rows = lab.ssh(host, "lscpu -p=CPU,CORE,SOCKET | grep -v ^#").split()
    first: dict[str, int] = {}
    for row in rows:
        cpu, _, core = row.partition(",")
        first.setdefault(core, int(cpu))
    return sorted(first.values())


def _by_stream(lab: Lab, host: str, build: str, elements: int, cpus: list[int]) -> float:
    places = ",".join(f"{{{cpu}}}" for cpu in cpus)
    pinned = f"OMP_NUM_THREADS={len(cpus)} OMP_PLACES='{places}' OMP_PROC_BIND=true"
    told = lab.ssh(host, f"{pinned} /tmp/stream-{build} {elements} {_PASSES}")
    return float(dict(line.split() for line in told.splitlines())["triad"])
