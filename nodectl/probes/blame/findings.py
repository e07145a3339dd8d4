"""Findings of an inquiry: which host, path or direction is slow, how certainly, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import format_value, time_text
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult
from nodectl.probes.blame.fit import Cause, HostPair, Reading, Suspect
from nodectl.probes.blame.inquiry import BLAME_SCORE, Blamed, Inquiry, Verdict

_NAME = "tcp"
# of segments sent again; a path without loss has some where buffers are short
_LOST_SHARE, _NOTHING_SHARE = 0.01, 0.5
_SEGMENT_BITS = 8 * 1448
_LEAST_OTHERS = 2
_REMEDY = "look at its cable, its switch's port and its interface's errors (`nodectl health` there)"


def blame(measurements: Sequence[Measurement], failed: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings that name a host: its pairs lose packets or fail, and pairs without it do not."""
    broken = [finding.hosts for finding in failed if finding.kind == "path" and finding.status is Status.FAILED]
    pairs = [*(measurement.hosts for measurement in measurements), *broken]
    names = sorted({name for pair in pairs for name in pair})
    return (*_losing(measurements, names), *_cut(measurements, broken, names))


def _losing(flows: Sequence[Measurement], names: Sequence[str]) -> Iterator[Finding]:
    shares: dict[tuple[str, ...], float] = {}
    for flow in flows:
        again, seconds, runs = (flow.conditions.get(name) for name in ("retransmits", "duration_s", "repetitions"))
        if isinstance(again, int) and isinstance(seconds, int | float) and isinstance(runs, int):
            segments = again + flow.value * 1e9 * seconds * runs / _SEGMENT_BITS
            shares[flow.hosts] = again / segments if segments else 0.0
    for name in names:
        received = min((share for hosts, share in shares.items() if hosts[1] == name), default=0.0)
        others = [share for hosts, share in shares.items() if name not in hosts]
        if (
            len(others) >= _LEAST_OTHERS
            and _NOTHING_SHARE > received > _LOST_SHARE
            and median(others) < _LOST_SHARE / 2
        ):
            expected = f"below {100 * _LOST_SHARE:g} % of segments sent again"
            yield _finding(
                name, "loses packets", expected, f"{100 * received:.2g} % and more of what it is sent is lost"
            )


def _cut(flows: Sequence[Measurement], broken: Sequence[tuple[str, ...]], names: Sequence[str]) -> Iterator[Finding]:
    """Yield the one host that is in every broken pair, where others have pairs that work."""
    common = set(names).intersection(*map(set, broken)) if broken else set()
    for name in sorted(common):
        others = [flow for flow in flows if name not in flow.hosts]
        # of two hosts of a single broken pair, the one whose other pairs work is not to blame
        works = [flow for flow in flows if name in flow.hosts and flow.value > 0]
        if len(others) >= _LEAST_OTHERS and (len(broken) > 1 or not works):
            actual = f"is in all that failed: {counted(len(broken), 'pair')}"
            yield _finding(name, "fails", "every pair is measured", actual)


def _finding(name: str, subject: str, expected: str, actual: str) -> Finding:
    return Finding(name, _NAME, Status.FAILED, subject, "none", expected, actual, _REMEDY, kind="host", hosts=(name,))


_NOTHING = 0.001
# what one direction of two hosts may be of the other, with repetitions that show the noise, and without
_TWO_HOSTS, _TWO_HOSTS_ONCE = 0.5, 0.25
_VERBS = {"both": "is slow", "out": "sends slowly", "in": "receives slowly"}
_MTU = "small packets pass, large ones do not: compare the MTUs of both ends and of each switch between"
_PATH = "both ends are fast with others: look at what lies between them, such as a switch's link or its load balancing"
_SWITCH = "its hosts are fast among themselves: look at the switch's links to the others"


# what grows with the speed of a pair; of round trips, how many fit into a microsecond
Rate = Callable[[Measurement], float]
_VALUE: Rate = attrgetter("value")


def _readings(measurements: Iterable[Measurement], rate: Rate) -> list[Reading]:
    return [Reading(*flow.hosts, rate(flow)) for flow in measurements if len(flow.hosts) == 2]


def _figure(rate: float, unit: str) -> str:
    return format_value(1 / rate if unit == "us" and rate else rate, unit)


def slow_findings(probe: str, verdict: Verdict, unit: str, faulty: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return a finding for each cause, worst first; a warning without culprit if it cannot be told.

    Nothing is left unsettled of hosts that are known to be `faulty`.
    """
    blamed = sorted(verdict.blamed, key=lambda blame: blame.suspect.effect)
    causes = [blame.suspect.cause for blame in blamed]
    guilty = {*faulty, *(name for cause in causes if cause.kind == "host" for name in cause.hosts)}
    unsettled = [suspect for suspect in verdict.unsettled if not guilty & set(suspect.cause.hosts)]
    return (
        *(_blamed(probe, blame, verdict.noise, unit) for blame in blamed),
        *(_unsettled(probe, suspect, verdict.noise, unit) for suspect in unsettled),
    )


def two_hosts(probe: str, measurements: Sequence[Measurement], rate: Rate = _VALUE) -> tuple[Finding, ...]:
    """Compare the two directions between two hosts, of which neither can be blamed."""
    pairs = {frozenset(measurement.hosts) for measurement in measurements}
    if len(pairs) != 1 or {len(measurement.hosts) for measurement in measurements} != {2}:
        return ()
    slow, fast = min(measurements, key=rate), max(measurements, key=rate)
    if rate(fast) <= 0:
        return ()
    once = slow.spread is None or fast.spread is None
    share = rate(slow) / rate(fast)
    # of a few repetitions, the range is about twice the deviation of one
    error = math.hypot(slow.spread or 0.0, fast.spread or 0.0) / 2
    is_noise = -math.log(max(share, _NOTHING)) < BLAME_SCORE * error
    if share >= (_TWO_HOSTS_ONCE if once else _TWO_HOSTS) or is_noise:
        return ()
    a, b = slow.hosts
    return (
        Finding(
            a,
            probe,
            Status.WARNING,
            " -> ".join(slow.hosts),
            expected=f"about {format_value(fast.value, fast.unit)}, as {' -> '.join(fast.hosts)}",
            actual=f"{format_value(slow.value, slow.unit)}, {_compared(share, slow.unit, 'the other way')}; "
            "two hosts cannot tell host from path",
            remedy=f"measure with a third host: `nodectl -l {a},{b},HOST probe {probe}`",
            hosts=(a, b),
        ),
    )


def _blamed(probe: str, blamed: Blamed, noise: float, unit: str) -> Finding:
    cause, share = blamed.suspect.cause, blamed.suspect.share
    value = _figure(share * blamed.usual, unit)
    among = _compared(share, unit, "the fleet")
    times = f"measured again {counted(blamed.again, 'time')}"
    if cause.kind in ("host", "switch"):
        links = "1 direction" if blamed.suspect.links == 1 else f"{blamed.suspect.links} directions"
        all_of = f"all its pairs ({links}) at {among}, {value}"
        actual = f"{all_of}; {times}, with {fold(blamed.partners)}"
    else:
        actual = f"only this {cause.kind} at {among}, {value}; {times}"
    remedy = _MTU if share < _NOTHING else {"host": _REMEDY, "switch": _SWITCH}.get(cause.kind, _PATH)
    certain = f"confidence {100 * blamed.confidence:.4g} %, {blamed.suspect.score:.0f} standard errors below"
    return Finding(
        cause.hosts[0],
        probe,
        Status.FAILED,
        _subject(cause),
        expected=f"about {_figure(blamed.usual, unit)}, as between the others",
        actual=actual,
        remedy=remedy,
        evidence=f"{certain}; noise of a measurement {_percent(noise)}",
        kind="path" if cause.kind == "switch" else cause.kind,
        hosts=cause.hosts,
    )


def _unsettled(probe: str, suspect: Suspect, noise: float, unit: str) -> Finding:
    causes = (suspect.cause, *suspect.rivals)
    hosts = tuple(dict.fromkeys(name for cause in causes for name in cause.hosts))
    named = " or ".join(_named(cause) for cause in causes)
    names, among = fold(hosts), _compared(suspect.share, unit, "the fleet")
    if suspect.rivals:
        actual = f"at {among}; it cannot be told which: {named}"
        remedy = f"measure {names} with further hosts: `nodectl probe {probe} --rounds all`"
    else:
        actual = f"{named} at {among}, but not each time: noise of {_percent(noise)}"
        remedy = f"measure longer: `nodectl probe {probe} --repetitions 10`"
    return Finding(hosts[0], probe, Status.WARNING, "unsettled", actual=actual, remedy=remedy, hosts=hosts)


def _subject(cause: Cause) -> str:
    if cause.kind == "host":
        return _VERBS[cause.side]
    if cause.kind == "switch":
        return f"switch {cause.name} to the others"
    return (" -> " if cause.kind == "direction" else " - ").join(cause.hosts)


def _named(cause: Cause) -> str:
    if cause.kind == "host":
        return f"{cause.hosts[0]} {_VERBS[cause.side]}"
    return f"the {cause.kind} {_subject(cause)}" if cause.kind != "switch" else _subject(cause)


def _compared(share: float, unit: str, whole: str) -> str:
    return f"{1 / max(share, _NOTHING):.1f} times {whole}" if unit == "us" else f"{_percent(share)} of {whole}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


Measure = Callable[[Sequence[HostPair]], ProbeResult]


def inquire(
    probe: str,
    first: ProbeResult,
    measure: Measure,
    switches: Mapping[str, str],
    note: Note,
    round_s: float | None = None,
    least_effect: float = 0.0,
    rate: Rate = _VALUE,
) -> tuple[tuple[Finding, ...], ProbeResult]:
    """Return findings for slow hosts and paths, and what was measured again for them; nothing if no pair looks slow.

    `measure` does one round of pairs, which took about `round_s` before. `least_effect` is as Inquiry has it, `rate`
    grows with the speed of a measurement.
    """
    hosts = {name for measurement in first.measurements for name in measurement.hosts}
    if len(hosts) < 2:
        return (), ProbeResult()
    if len(hosts) == 2:
        note(f"{probe}: only two hosts: a slow host and a slow path look the same, and only a third host could tell")
        return two_hosts(probe, first.measurements, rate), ProbeResult()
    inquiry = Inquiry(switches, least_effect)
    inquiry.add(_readings(first.measurements, rate))
    again, has_time = ProbeResult(), True
    while has_time and (rounds := inquiry.next_rounds()):
        takes = "" if round_s is None else f", about {time_text(round_s * len(rounds))}"
        count = f"{counted(len(rounds), 'round')}{takes}"
        note(f"{probe}: some pairs look slow and are measured again: {count}, healthy pairs beside them")
        for pairs in rounds:
            second = measure(pairs)
            if second == ProbeResult():
                note(f"{probe}: no time is left to measure them again")
                has_time = False
                break
            marked = tuple(measurement.with_conditions(again=inquiry.stage) for measurement in second.measurements)
            reported = (*first.findings, *again.findings)
            again += ProbeResult(marked, tuple(finding for finding in second.findings if finding not in reported))
            inquiry.add(_readings(marked, rate))
    faulty = {name for finding in first.findings if finding.kind == "host" for name in finding.hosts}
    return slow_findings(probe, inquiry.verdict(), first.measurements[0].unit, faulty), again
