"""What is said of a verdict: kind, hosts, share, confidence, what to do; and that of two hosts it cannot be told."""

import random

import pytest

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.blame.findings import slow_findings, two_hosts
from nodectl.probes.blame.fit import Cause
from nodectl.probes.rounds import all_pairs
from tests.probes.blame.simulated import Fleet, investigate

NAMES = tuple(f"gpu{number:02}" for number in range(1, 9))


def said(cause: Cause, left: float, names: tuple[str, ...] = NAMES) -> tuple[Finding, ...]:
    fleet = Fleet(names, 0.02, random.Random(5), {cause: left}, bursts=0.0)
    return slow_findings("tcp", investigate(fleet, all_pairs(names)), "Gbit/s")


@pytest.mark.parametrize(
    ("cause", "left", "subject", "words"),
    [
        (Cause("host", ("gpu07",), "both"), 0.48, "is slow", ("all its pairs", "48 %", "with gpu[")),
        (Cause("host", ("gpu07",), "out"), 0.48, "sends slowly", ("all its pairs",)),
        (Cause("host", ("gpu07",), "in"), 0.48, "receives slowly", ("all its pairs",)),
        (Cause("path", ("gpu03", "gpu08")), 0.5, "gpu03 - gpu08", ("only this path", "measured again")),
        (Cause("direction", ("gpu08", "gpu03")), 0.5, "gpu08 -> gpu03", ("only this direction",)),
    ],
)
def test_each_kind_in_words(cause: Cause, left: float, subject: str, words: tuple[str, ...]) -> None:
    (found,) = said(cause, left)
    assert (found.kind, found.hosts, found.host) == (cause.kind, cause.hosts, cause.hosts[0])
    assert (found.status, found.subject, found.check) == (Status.FAILED, subject, "tcp")
    assert all(word in found.actual for word in words), found.actual
    assert found.expected.startswith("about 9.")
    assert found.evidence.startswith("confidence 9")
    assert found.remedy


def test_what_cannot_be_told_names_no_culprit() -> None:
    """Two of three hosts are slow: there is no telling from what."""
    fleet = Fleet(NAMES, 0.02, random.Random(5), {Cause("host", ("gpu08",), "both"): 0.3}, bursts=0.0)
    # the slow host has one partner only, and again no other
    plan = [[pair for pair in each if "gpu08" not in pair or "gpu01" in pair] for each in all_pairs(NAMES)]
    fleet.apart = frozenset((name, "gpu08") for name in NAMES[1:])
    (found,) = slow_findings("tcp", investigate(fleet, plan), "Gbit/s")
    assert (found.kind, found.status) == ("", Status.WARNING)
    assert set(found.hosts) == {"gpu01", "gpu08"}
    assert "gpu08 is slow" in found.actual
    assert "the path gpu01 - gpu08" in found.actual
    assert "`nodectl probe tcp --rounds all`" in found.remedy and "…" not in found.remedy


def pair(there: float, back: float, spread: float | None = 0.02) -> list[Measurement]:
    return [
        Measurement("tcp", ("a", "b"), there, "Gbit/s", "a -> b", spread=spread),
        Measurement("tcp", ("b", "a"), back, "Gbit/s", "b -> a", spread=spread),
    ]


@pytest.mark.parametrize(
    ("found", "hosts"),
    [
        (pair(9.0, 9.3), ()),
        (pair(9.0, 4.0), ("b", "a")),
        (pair(9.0, 4.0, spread=0.6), ()),
        (pair(9.0, 1.0, spread=None), ("b", "a")),
        (pair(0.0, 0.0), ()),
        ([], ()),
    ],
)
def test_two_hosts(found: list[Measurement], hosts: tuple[str, ...]) -> None:
    findings = two_hosts("tcp", found)
    assert [each.hosts for each in findings] == ([hosts] if hosts else [])
    for each in findings:
        assert each.kind == ""
        assert "two hosts cannot tell host from path" in each.actual
