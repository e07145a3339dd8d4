"""Hosts whose ranks answer as a test tells them to."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nodectl.common.units import MIB
from nodectl.model.host import Host
from nodectl.probes.base import ProbeResult
from nodectl.probes.nccl.fleet import Route
from nodectl.probes.nccl.probe import run_nccl
from nodectl.probes.nccl.run import NcclOptions
from nodectl.probes.options import Sizes
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, Fleet, play

GPU = {"gpus": 8, "torch": "2.7.0+cu128"}
Answers = Callable[[str, str, Sequence[str]], Answer]


def option(args: Sequence[str], name: str) -> str:
    """The value that a program was given."""
    return next(each.partition("=")[2] for each in args if each.startswith(f"--{name}="))


def ranks_of(args: Sequence[str]) -> range:
    """Those of one host."""
    base = int(option(args, "rank-base"))
    return range(base, base + int(option(args, "nproc")))


def times(rank: int, seconds: Sequence[float], wrong: int = 0, size: int = 64 * MIB) -> dict[str, Any]:
    """What a rank says of one case."""
    told = {"collective": "all_reduce", "size_bytes": size, "asked_bytes": size, "rank": rank, "iterations": 1}
    return {"event": "times", **told, "seconds": seconds, "wrong": wrong}


def ready(rank: int) -> dict[str, Any]:
    """A rank that met the others."""
    told = {"torch": "2.7.0+cpu", "nccl": None, "cuda": None, "device": "cpu", "numa": None}
    return {"event": "ready", "rank": rank, **told}


def proven(rank: int, interface: str = "eth0") -> list[dict[str, Any]]:
    """The end of a rank that did all of its part."""
    sockets = {"event": "sockets", "rank": rank, "interfaces": {interface: 2}, "peers": ["192.0.2.9"]}
    return [sockets, {"event": "done", "rank": rank}]


def measured(host: str, module: str, args: Sequence[str]) -> Answer:
    """Every host works; rank 1 is the slow one of the second repetition."""
    if module == "probes.endpoints":
        return Answer([ENDPOINT])
    told: list[dict[str, Any]] = [{"event": "started", "pid": 77}]
    for rank in ranks_of(args):
        told += [ready(rank), times(rank, [0.5, 0.8 if rank == 1 else 0.5, 0.4]), *proven(rank)]
    return Answer(told)


def with_gpus(host: str, module: str, args: Sequence[str]) -> Answer:
    """The same with 8 GPUs in each host."""
    return Answer([{**ENDPOINT, **GPU}]) if module == "probes.endpoints" else measured(host, module, args)


def fleet_of(monkeypatch: pytest.MonkeyPatch, answers: Answers, route: Route | None = None) -> Fleet:
    """A fleet that answers so; what NCCL should do there is `should` on each host."""
    fleet = play(monkeypatch, answers)
    known = route or Route(socket="eth0")
    monkeypatch.setattr(
        "nodectl.probes.nccl.probe.find_routes", lambda _, hosts, __: {host.name: known for host in hosts}
    )
    return fleet


def probe(fleet: Any, *hosts: Host, notes: list[str] | None = None, **options: Any) -> ProbeResult:
    """Run it on these hosts, else on four."""
    said = notes if notes is not None else []
    # the only one that the scripted ranks time
    usual = {"sizes": Sizes((64 * MIB,)), "collectives": ("all_reduce",)}
    return run_nccl(fleet, hosts or HOSTS, NcclOptions(**{**usual, **options}), said.append)
