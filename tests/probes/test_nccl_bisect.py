"""A collective over all hosts that fails with nobody to blame: who makes smaller groups fail."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.status import Status
from tests.probes.scripted import ENDPOINT, Answer
from tests.probes.scripted_nccl import LOOK, fleet_of, option, probe, proven, ranks_of, ready, times

HOSTS = tuple(Host(f"node{number:02}", f"192.0.2.{number}") for number in range(1, 17))
GONE = {"event": "error", "text": "Connection closed by peer", "peer": True}


class Meeting:
    """Ranks that wait for each other, as real ones do: who is in a group shows once all are there."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], list[str]] = {}
        self._all_here = threading.Condition()

    def join(self, host: str, first: str, world: int) -> list[str]:
        """All members, once the last has come."""
        with self._all_here:
            members = self._open.setdefault((first, world), [])
            members.append(host)
            if len(members) == world:
                del self._open[first, world]
                self._all_here.notify_all()
            assert self._all_here.wait_for(lambda: len(members) == world, timeout=10)
            return members


def answers(bad: Sequence[str], least: int, how: str) -> Any:
    """A fleet where groups that hold a bad host (any group where none is named) and so many hosts fail."""
    meeting = Meeting()

    def answer(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": f"192.0.2.{int(host[-2:])}"}])
        if args[0] == "look":
            return Answer([LOOK])
        world = int(option(args, "world-size"))
        members = meeting.join(host, option(args, "master-addr"), world)
        fails = world >= least and (not bad or any(name in members for name in bad))
        (rank,) = ranks_of(args)
        if fails and how == "hang":
            return Answer([ready(rank), GONE], status=1)
        return Answer([ready(rank), times(rank, [0.5], wrong=3 if fails else 0), *proven(rank)])

    return answer


@pytest.mark.parametrize(("how", "bad"), [("hang", "node01"), ("wrong", "node16")])
def test_the_one_host_in_all_groups_that_fail_is_named(monkeypatch: pytest.MonkeyPatch, how: str, bad: str) -> None:
    notes: list[str] = []
    fleet = fleet_of(monkeypatch, answers([bad], 2, how))
    found = probe(fleet, *HOSTS, notes=notes, collectives=("all_reduce",))
    blamed = [each for each in found.findings if each.kind == "host" and each.status is Status.FAILED]
    assert [each.host for each in blamed] == [bad]
    assert "fails in groups with it and passes in those without it" in blamed[0].actual
    assert any("smaller groups" in each for each in notes)


def test_a_number_of_hosts_that_is_too_large_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(fleet_of(monkeypatch, answers([], 16, "wrong")), *HOSTS, collectives=("all_reduce",))
    assert not [each for each in found.findings if each.kind == "host" and each.status is Status.FAILED]
    (group,) = [each for each in found.findings if each.subject == "group"]
    assert (group.status, group.action) == (Status.FAILED, "none")
    assert "passes over fewer" in group.actual
