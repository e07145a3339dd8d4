"""What the programs of the GPU probes say, for hosts that answer as a test tells them to."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.probes.registry import AnyProbe
from tests.probes.scripted import HOSTS, Answer, Fleet, play

# a host's events, by its name and how often it was measured before
Says = Callable[[str, int], Sequence[dict[str, Any]]]
SEEN = {"samples": 4, "clock_mhz": 1755.0, "temperature_c": 61.0, "throttled": ["power cap"]}


def look(gpus: int | None = 8, torch: str | None = "2.7.0+cu128", **more: Any) -> Answer:
    told = {"event": "ready", "gpus": gpus, "torch": torch, "machine": "", "topology": None}
    return Answer([{**told, **more}])


def devices(gpus: int, **more: Any) -> dict[str, Any]:
    card = {"device": "NVIDIA H200", "processors": 132, "capability": "9.0", "pcie_gen": 5, "pcie_width": 16, **more}
    host = {"torch": "2.7.0+cu128", "cuda": "12.8", "cpu": "EPYC 9534", "cpu_kernels": "AVX512", "threads": 64}
    return {"event": "devices", "gpus": [{"gpu": gpu, **card} for gpu in range(gpus)], "host": host}


def probe(
    monkeypatch: pytest.MonkeyPatch,
    declared: AnyProbe,
    says: Says,
    looks: dict[str, Answer] | None = None,
    *,
    hosts: Sequence[Host] = HOSTS,
    options: ProbeOptions | None = None,
    gpus: int | None = 8,
) -> tuple[ProbeResult, Fleet]:
    """The probe on hosts of which each answers `look` with `gpus` GPUs, but for `looks`."""
    times: dict[str, int] = {}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if args[0] == "look":
            return (looks or {}).get(host, look(gpus))
        number = times[host] = times.get(host, -1) + 1
        events = list(says(host, number))
        return Answer(events, status=1 if any(each["event"] == "error" for each in events) else 0)

    fleet = play(monkeypatch, answers)
    return declared.run(fleet, hosts, options or declared.options(), lambda _: None), fleet


def told(result: ProbeResult) -> list[tuple[str, str, str]]:
    return [(each.host, each.status.value, each.subject) for each in result.findings]


def measured_hosts(fleet: Fleet) -> list[str]:
    return [host for host, _, args in fleet.asked if args[0] == "measure"]
