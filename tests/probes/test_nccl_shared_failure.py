"""A collective over all hosts that fails: a host that several see fail is not named, one that fails by itself is."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.status import Status
from tests.probes.scripted import ENDPOINT, Answer
from tests.probes.scripted_nccl import fleet_of, probe, proven, ranks_of, ready, times

HOSTS = tuple(Host(f"node{number:02}", f"192.0.2.{number}") for number in range(1, 5))
GONE = {"event": "error", "text": "Connection closed by peer", "peer": True}


def answers(wrong: Sequence[str] = (), ended: Sequence[str] = ()) -> Any:
    """A fleet whose hosts have wrong results, or see another end."""

    def answer(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": f"192.0.2.{int(host[-2:])}"}])
        (rank,) = ranks_of(args)
        if host in ended:
            return Answer([ready(rank), GONE], status=1)
        return Answer([ready(rank), times(rank, [0.5], wrong=3 * (host in wrong)), *proven(rank)])

    return answer


@pytest.mark.parametrize("how", ["wrong", "ended"])
def test_what_all_hosts_saw_drains_none_of_them(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    names = [host.name for host in HOSTS]
    found = probe(fleet_of(monkeypatch, answers(**{how: names})), *HOSTS, collectives=("all_reduce",))
    bad = [each for each in found.findings if each.status is Status.FAILED]
    assert {each.host for each in bad} == {*names}
    assert {(each.kind, each.action) for each in bad} == {("", "none")}
    assert all("--scope pairs" in each.remedy for each in bad)


def test_one_host_that_is_wrong_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(fleet_of(monkeypatch, answers(wrong=["node03"])), *HOSTS, collectives=("all_reduce",))
    (bad,) = [each for each in found.findings if each.status is Status.FAILED]
    assert (bad.host, bad.kind) == ("node03", "host")
