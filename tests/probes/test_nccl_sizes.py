"""Which sizes the nccl probe takes where nobody asks for any: those of floors, what a second carries; a node first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.units import GIB, MIB
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.floors import Reference, held_against
from nodectl.probes.nccl.fleet import Route
from nodectl.probes.nccl.run import NcclOptions
from nodectl.probes.options import Sizes
from nodectl.probes.registry import kind_of
from nodectl.profiles.schema import Hardware
from nodectl.report.measurements import measurements_table
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import HOSTS, Answer, Fleet
from tests.probes.scripted_nccl import fleet_of, option, probe, ranks_of, ready, with_gpus
from tests.torch_venv import torch_venv

USUAL = NcclOptions().sizes
NVSWITCH = Route(socket="eth0", link_class="nvswitch", inside_gb_s=450.0)


def hosts(hardware: str = "h100-8", **more: Any) -> list[Host]:
    return [Host(host.name, host.address, variables={"nodectl_hardware": hardware, **more}) for host in HOSTS]


def answers(host: str, module: str, args: Sequence[str]) -> Answer:
    """Every case that is asked for takes as long as 200 GB/s allow."""
    if module == "probes.endpoints" or args[0] == "look":
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
    runs = [args for _, module, args in fleet.asked if module == "probes.nccl.probe" and args[0] == "ranks"]
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


def test_a_site_s_own_profile_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "hardware"
    folder.mkdir()
    floor = (
        "{probe: nccl, conditions: {collective: all_gather, nodes: 8, size: 4G}, value: 9, unit: GB/s, source: ours}"
    )
    (folder / "ours.yml").write_text(f"description: ours\ngpus: 8\nfloors: [{floor}]\n")
    fleet = fleet_of(monkeypatch, answers, NVSWITCH)
    probe(fleet, *hosts("ours"), sizes=USUAL, collectives=(), profile_dirs=(tmp_path,))
    assert [more for *_, more in asked(fleet)] == ["", f"all_gather:{4 * GIB}"]


def test_a_floor_s_size_that_cannot_be_measured_is_said_and_the_run_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(host: str, module: str, args: Sequence[str]) -> Answer:
        answer = answers(host, module, args)
        left = {
            "event": "left",
            "collective": "all_reduce",
            "asked_bytes": 16 * GIB,
            "reason": "there is room for 9 bytes",
        }
        if module == "probes.endpoints" or args[0] == "look" or option(args, "rank-base") != "0":
            return answer
        return Answer([each for each in answer.events if each.get("size_bytes") != 16 * GIB] + [left])

    found = probe(fleet_of(monkeypatch, short, NVSWITCH), *hosts()[:1], sizes=USUAL, scope="node")
    (finding,) = [each for each in found.findings if each.status is Status.SKIPPED]
    assert (finding.subject, finding.actual) == ("all_reduce 16 GiB", "a floor's size: there is room for 9 bytes")
    assert {each.conditions["complete"] for each in found.measurements} == {True}


def test_each_line_says_its_share_or_that_nothing_is_compared() -> None:
    known = {"collective": "all_reduce", "backend": "nccl", "ranks": 8, "size_bytes": 64 * MIB, "busbw_gb_s": 360.0}
    modelled = Measurement(
        "nccl", ("n1",), 360.0, "GB/s", conditions={**known, "model_busbw_gb_s": 450.0, "model_limit": "inside"}
    )
    bare = Measurement("nccl", ("n1",), 360.0, "GB/s", conditions=known)
    reference = Reference("own", Hardware(description="a test's", gpus=8))
    held = held_against(ProbeResult((modelled, bare)), {"n1": reference})
    first, second = (kind_of("nccl").conditions(each.conditions) for each in held.measurements)
    assert first.endswith("80 % of the 450 GB/s that the links inside allow")
    assert second.endswith("no floor is known")
    assert "no floor is known" in measurements_table(held.measurements, kind_of)


@pytest.mark.slow
def test_gloo_takes_the_usual_sizes_as_far_as_a_second_carries_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two real processes, and a size that they would need hours for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pair = [Host(name, "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()}) for name in "ab"]
    sizes = Sizes((4096, 1 << 40), usual=True)
    found = probe(LocalTransport(), *pair, sizes=sizes, collectives=("all_reduce",), repetitions=1, duration_s=0.01)
    small, large = found.measurements
    assert (small.conditions["verdict_size"], large.conditions["verdict_size"]) == ("small", "large")
    assert large.conditions["size_bytes"] in [(1 << 40) >> 2 * step for step in range(1, 14)]
    assert large.conditions["complete"] is True
    assert not found.findings
