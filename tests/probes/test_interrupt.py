"""Ctrl-C: what was measured until then is there, of the probes that ended and of the one that did not."""

import threading
from typing import Any

import pytest

from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, ProbeResult, host_finding
from nodectl.probes.lost import Watched
from nodectl.probes.schedule import by_machine, in_rounds
from nodectl.probes.series import RunInterrupt, run_probes
from tests.probes.declared import wanted_of
from tests.probes.scripted import HOSTS


class Transport:
    """Its end is told to what runs."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def close(self) -> None:
        self.over.set()


def measured(name: str) -> ProbeResult:
    return ProbeResult((Measurement("x", (name,), 1.0, "x", "", None, None, {}),))


def hosts_of(end: RunInterrupt) -> list[str]:
    return sorted(measurement.hosts[0] for measurement in end.result.measurements)


def interrupted(run: Any, transport: Any) -> RunInterrupt:
    wanted = [wanted_of("first", lambda *_: measured("earlier")), wanted_of("second", run)]
    with pytest.raises(RunInterrupt) as end:
        run_probes(transport, HOSTS, wanted, None, lambda _: None)
    return end.value


def test_rounds_that_ended_and_the_last_words_of_the_one_that_did_not() -> None:
    transport: Any = Transport()
    begun = threading.Event()

    def work(name: str) -> ProbeResult:
        if name == "c":
            assert begun.wait(10)
            raise KeyboardInterrupt
        if name == "d":
            begun.set()
            # it ends because its connection does: what it has is worth keeping, what it blames is not
            assert transport.over.wait(10)
            return measured("d") + ProbeResult(findings=(host_finding("x", "d", Status.UNKNOWN, "lost"),))
        return measured(name)

    def run(watched: Watched, _: object, __: ProbeOptions, note: Any) -> ProbeResult:
        return in_rounds(watched, [["a", "b"], ["c", "d"]], work, "x", note)

    end = interrupted(run, transport)
    assert hosts_of(end) == ["a", "b", "d", "earlier"]
    (finding,) = end.result.findings
    assert (finding.check, finding.status, finding.subject) == ("second", Status.UNKNOWN, "interrupted")


def test_after_an_end_nothing_more_is_measured() -> None:
    class Node:
        def __init__(self, name: str, machine: str) -> None:
            self.name, self.machine = name, machine

    transport: Any = Transport()
    begun, worked = threading.Event(), list[str]()

    def work(node: Node) -> ProbeResult:
        worked.append(node.name)
        if node.machine == "one":
            assert begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        assert transport.over.wait(10)
        return measured(node.name)

    def run(watched: Watched, *_: Any) -> ProbeResult:
        nodes = [Node("a", "one"), Node("b", "one"), Node("c", "two"), Node("d", "two")]
        return by_machine(watched, nodes, work, 8)

    assert hosts_of(interrupted(run, transport)) == ["c", "earlier"]
    assert sorted(worked) == ["a", "c"]
