"""Whose round trips are slow: the host that its pairs have in common, or the path; measured again before blaming."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nodectl.blame.inquiry import Blamed, Inquiry, Verdict
from nodectl.blame.model import HostPair, Reading, Suspect
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult

_NAME = "latency"
# healthy paths of one fabric differ by some switches, and a busy host by its scheduler
SLOW_TIMES = 1.5
_REMEDY = "look for a busy processor, deep sleep states, a long way round or a queue there (`nodectl health`)"


def slow_trips(
    switches: Mapping[str, str],
    measurements: Sequence[Measurement],
    again: Callable[[Sequence[HostPair]], ProbeResult],
    note: Note,
    has_time: Callable[[], bool],
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """(what went wrong in measuring again, who is blamed)."""
    inquiry = Inquiry(switches)
    inquiry.add(_readings(measurements))
    failed: list[Finding] = []
    while rounds := _worth_it(inquiry):
        for pairs in rounds:
            if not has_time():
                note("latency: no time is left to measure the suspects again")
                return tuple(failed), tuple(_findings(inquiry.verdict()))
            note(f"latency: once more between {', '.join(' and '.join(pair) for pair in pairs[:4])}")
            found = again(pairs)
            failed += found.findings
            inquiry.add(_readings(found.measurements))
    return tuple(failed), tuple(_findings(inquiry.verdict()))


def _worth_it(inquiry: Inquiry) -> list[list[HostPair]]:
    if not any(_is_slow(each) for each in inquiry.first_sight()):
        return []
    return inquiry.next_rounds()


def _readings(measurements: Sequence[Measurement]) -> Iterator[Reading]:
    """More is better: trips a second."""
    for each in measurements:
        if each.value > 0:
            yield Reading(each.hosts[0], each.hosts[1], 1e6 / each.value)


def _is_slow(suspect: Suspect) -> bool:
    return suspect.share < 1 / SLOW_TIMES


def _findings(verdict: Verdict) -> Iterator[Finding]:
    for each in verdict.blamed:
        if _is_slow(each.suspect):
            yield _blamed(each)
    for suspect in verdict.unsettled:
        if _is_slow(suspect):
            yield _unsettled(suspect)


def _blamed(found: Blamed) -> Finding:
    cause = found.suspect.cause
    usual_us = 1e6 / found.usual
    return Finding(
        cause.hosts[0],
        _NAME,
        Status.FAILED,
        "round trips are slow" if cause.kind == "host" else " - ".join(cause.hosts),
        expected=f"about {usual_us:.3g} us, as between the others",
        actual=f"{1 / found.suspect.share:.1f} times as long as between the others, measured again with "
        f"{', '.join(found.partners[:4]) or 'the same ends'}; confidence {100 * found.confidence:.2f} %",
        remedy=_REMEDY,
        kind="path" if cause.kind == "switch" else cause.kind,
        hosts=cause.hosts,
    )


def _unsettled(suspect: Suspect) -> Finding:
    """It is slow, and nobody can say whose fault that is: no culprit."""
    causes = [suspect.cause, *suspect.rivals]
    names = "; or ".join(f"the {each.kind} {' - '.join(each.hosts)}" for each in causes)
    hosts = tuple(dict.fromkeys(name for each in causes for name in each.hosts))
    return Finding(
        hosts[0],
        _NAME,
        Status.WARNING,
        " - ".join(hosts),
        actual=f"round trips are {1 / suspect.share:.1f} times as long; it cannot be told whether it is {names}",
        remedy="measure with more hosts, or once more",
        hosts=hosts,
    )
