"""The nccl probe over nodes and pairs."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.nccl.fleet import Route
from tests.probes.scripted import ENDPOINT, HOSTS, Answer
from tests.probes.scripted_nccl import (
    fleet_of,
    measured,
    option,
    probe,
    proven,
    ranks_of,
    ready,
    times,
    with_gpus,
)


def test_a_slow_host_of_pairs_is_measured_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pairs_of_six(monkeypatch, 1.0)
    (finding,) = found.findings
    assert (finding.host, finding.kind, finding.status) == ("node03", "host", Status.FAILED)
    again = [each for each in found.measurements if each.conditions.get("again")]
    assert again
    assert len([each for each in found.measurements if not each.conditions.get("again")]) == 15
    assert all(len(set(each.hosts)) == 2 for each in again)


def pairs_of_six(monkeypatch: pytest.MonkeyPatch, slow_s: float) -> ProbeResult:
    """Pairs of six hosts, of which node03 takes `slow_s` where others take 0.5 s."""
    slow = "192.0.2.3"

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": f"192.0.2.{host[-1]}"}])
        first = option(args, "master-addr")
        seats.setdefault(first, set()).add(host)
        took = slow_s if slow == first or host == "node03" else 0.5
        told: list[dict[str, Any]] = []
        for rank in ranks_of(args):
            told += [ready(rank), times(rank, [took * each for each in (1.0, 1.01, 0.99, 1.005, 0.995)]), *proven(rank)]
        return Answer(told)

    seats: dict[str, set[str]] = {}
    hosts = [Host(f"node{n:02}", f"192.0.2.{n}") for n in range(1, 7)]
    return probe(fleet_of(monkeypatch, answers), *hosts, scope="pairs")


def test_each_node_by_itself_has_several_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(fleet_of(monkeypatch, measured), scope="node")
    assert sorted(each.hosts for each in found.measurements) == [(host.name,) for host in HOSTS]
    assert {each.conditions["ranks"] for each in found.measurements} == {2}
    gpus = probe(fleet_of(monkeypatch, with_gpus, Route(link_class="nvswitch", inside_gb_s=450.0)), scope="node")
    told = {(each.conditions["gpus"], each.conditions["link_class"]) for each in gpus.measurements}
    assert told == {(8, "nvswitch")}
    assert {each.conditions["model_busbw_gb_s"] for each in gpus.measurements} == {450.0}
