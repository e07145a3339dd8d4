"""Which sizes the nccl probe takes where nobody asks for any: those of floors, what a second carries; a node first."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.common.units import GIB, MIB
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.nccl.fleet import Route
from nodectl.probes.nccl.run import NcclOptions
from nodectl.probes.options import Sizes
from tests.probes.scripted import HOSTS, Answer, Fleet
from tests.probes.scripted_nccl import fleet_of, option, probe, ranks_of, ready, with_gpus

USUAL = NcclOptions().sizes
NVSWITCH = Route(socket="eth0", link_class="nvswitch", inside_gb_s=450.0)


def hosts(hardware: str = "h100-8", **more: Any) -> list[Host]:
    return [Host(host.name, host.address, variables={"nodectl_hardware": hardware, **more}) for host in HOSTS]


def answers(host: str, module: str, args: Sequence[str]) -> Answer:
    """Every case that is asked for takes as long as 200 GB/s allow."""
    if module == "probes.endpoints":
        return with_gpus(host, module, args)
    sizes = list(map(int, option(args, "sizes").split(",")))
    cases = [(name, size) for name in option(args, "collectives").split(",") for size in sizes]
    cases += [(case.split(":")[0], int(case.split(":")[1])) for case in option(args, "more").split(",") if case]
    events: list[dict[str, Any]] = []
    for rank in ranks_of(args):
        events.append(ready(rank))
        for name, size in cases:
            told = {"collective": name, "size_bytes": size, "asked_bytes": size, "rank": rank, "iterations": 1}
            events.append({"event": "times", **told, "seconds": [size / 200e9], "wrong": 0})
        events += [
            {"event": "nccl_log", "rank": rank, "lines": ["NCCL INFO NCCL version 2.27.5"]},
            {"event": "done", "rank": rank},
        ]
    return Answer(events)


def asked(fleet: Fleet) -> list[tuple[int, str, str, str]]:
    """(ranks, collectives, sizes, more) of each run of ranks, each once and in their order."""
    runs = [args for _, module, args in fleet.asked if module == "probes.nccl.probe"]
    named = [(option(args, "collectives"), option(args, "sizes"), option(args, "more")) for args in runs]
    worlds = [int(option(args, "world-size")) for args in runs]
    return list(dict.fromkeys((world, *names) for world, names in zip(worlds, named, strict=True)))


def test_a_node_is_measured_first_and_at_the_size_of_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, notes = fleet_of(monkeypatch, answers, NVSWITCH), []  # type: tuple[Fleet, list[str]]
    found = probe(fleet, *hosts(), sizes=USUAL, collectives=(), notes=notes)
    (node, *own), (world, every, *together) = asked(fleet)
    assert (node, own) == (8, ["all_reduce", f"{MIB},{64 * MIB}", f"all_reduce:{16 * GIB}"])
    assert (world, len(every.split(",")), together) == (32, 6, [f"{MIB},{64 * MIB}", f"all_reduce:{16 * GIB}"])
    scopes = [str(measurement.conditions["scope"]) for measurement in found.measurements]
    assert scopes == sorted(scopes, reverse=True) and scopes.count("node") == 4 * 3
    assert "nccl: each host by itself first: all_reduce at 1 MiB, 64 MiB, 16 GiB" in notes


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        # who names sizes gets these
        ({"sizes": Sizes((64 * MIB,))}, [(32, "all_reduce", str(64 * MIB), "")]),
        ({"sizes": USUAL, "scope": "node"}, [(8, "all_reduce", f"{MIB},{64 * MIB}", f"all_reduce:{16 * GIB}")]),
        ({"sizes": USUAL, "scope": "pairs"}, [(16, "all_reduce", f"{MIB},{64 * MIB}", "")]),
        ({"sizes": USUAL, "collectives": ("broadcast",)}, [(32, "broadcast", f"{MIB},{64 * MIB}", "")]),
    ],
)
def test_what_is_asked_for_is_measured(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], runs: list[tuple[int, str, str, str]]
) -> None:
    fleet = fleet_of(monkeypatch, answers, NVSWITCH)
    probe(fleet, *hosts(), **{"collectives": ("all_reduce",), **options})
    assert asked(fleet) == runs


@pytest.mark.parametrize(
    ("hardware", "route", "more"),
    [
        ("dgx-a100", NVSWITCH, f"all_reduce:{8 * GIB}"),
        # the floor of the link that is found
        ("a100-ib100", Route(link_class="pcie"), f"all_reduce:{8 * GIB}"),
        ("h100-8", Route(link_class="pcie"), ""),
        # nobody named a machine: of the GPUs that are seen, or what their NVLink predicts
        ("auto", Route(link_class="nvswitch", gpu="NVIDIA H100 80GB HBM3"), f"all_reduce:{16 * GIB}"),
        ("auto", Route(link_class="nvswitch", gpu="NVIDIA H20", inside_gb_s=450.0), f"all_reduce:{GIB}"),
        ("auto", Route(link_class="pcie", gpu="NVIDIA L4", inside_gb_s=31.5), ""),
        ("h100-9", NVSWITCH, ""),
        ("unknown", NVSWITCH, ""),
    ],
)
def test_floors_of_these_gpus_and_links(
    monkeypatch: pytest.MonkeyPatch, hardware: str, route: Route, more: str
) -> None:
    fleet = fleet_of(monkeypatch, answers, route)
    probe(fleet, *hosts(hardware), sizes=USUAL, scope="node")
    assert asked(fleet) == [(8, "all_reduce", f"{MIB},{64 * MIB}", more)]


def test_a_floor_s_size_that_cannot_be_measured_is_said_and_the_run_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(host: str, module: str, args: Sequence[str]) -> Answer:
        answer = answers(host, module, args)
        left = {
            "event": "left",
            "collective": "all_reduce",
            "asked_bytes": 16 * GIB,
            "reason": "there is room for 9 bytes",
        }
        if module == "probes.endpoints" or option(args, "rank-base") != "0":
            return answer
        return Answer([each for each in answer.events if each.get("size_bytes") != 16 * GIB] + [left])

    found = probe(fleet_of(monkeypatch, short, NVSWITCH), *hosts()[:1], sizes=USUAL, scope="node")
    (finding,) = [each for each in found.findings if each.status is Status.SKIPPED]
    assert (finding.subject, finding.actual) == ("all_reduce 16 GiB", "a floor's size: there is room for 9 bytes")
    assert {each.conditions["complete"] for each in found.measurements} == {True}
