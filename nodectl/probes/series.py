"""Several probes one after the other, within the time that there is."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeOptions, ProbeResult
from nodectl.probes.budget import BudgetError, share_s
from nodectl.probes.floors import judged
from nodectl.probes.lost import Watched, said_once
from nodectl.probes.registry import AnyProbe
from nodectl.probes.rounds import TooFewError
from nodectl.transport.base import Transport


class RunInterrupt(KeyboardInterrupt):
    """Ctrl-C, with what was measured until then."""

    def __init__(self, result: ProbeResult) -> None:
        super().__init__()
        self.result = result


def run_probes(
    transport: Transport,
    hosts: Sequence[Host],
    wanted: Sequence[tuple[AnyProbe, ProbeOptions]],
    ends_at: float | None,
    note: Note,
    profile_dirs: Sequence[Path] = (),
    optional: Collection[str] = (),
) -> ProbeResult:
    """Each takes no more than its share of the time until `ends_at`, and leaves what it does not need.

    All is held against the hosts' hardware profiles, those of `profile_dirs` before nodectl's own.

    A probe that does not fit (BudgetError) or cannot be run so (UsageError) is refused while nothing is measured;
    later it is an unknown finding, and what was measured is kept; so is one of several for which the hosts are too few
    (TooFewError), if another can be run. The `optional` ones were not asked for by name:
    what cannot be run so is left out.

    A host that is lost has one finding, and is not asked again. Ctrl-C raises RunInterrupt with what was measured.
    """
    result, left_out = ProbeResult(), None
    too_few = ProbeResult()
    watched = transport if isinstance(transport, Watched) else Watched(transport)
    reported: tuple[str, ...] = ()
    for number, (probe, options) in enumerate(wanted):
        now = time.monotonic()
        later = [other for other, _ in wanted[number + 1 :]]
        share = None
        if ends_at is not None:
            # an equal share; less if the later probes would lack what they need at least
            least_s = sum(other.cost_s(other.least) for other in later)
            share = now + min(share_s(ends_at - now, 1 + len(later)), ends_at - now - least_s)
        watched.measured.clear()
        try:
            if ends_at is not None and ends_at <= now and result.measurements:
                raise BudgetError(f"no time is left for the {probe.name} probe", "give more time with --budget")
            given = replace(options, ends_at=share, profile_dirs=tuple(profile_dirs))
            own_result = probe.run(watched, hosts, given, note)
            result += said_once(probe.name, own_result, watched.lost, reported)
            reported = tuple(watched.lost)
        except KeyboardInterrupt as error:
            # what it had measured, without what it would have made of that
            kept = "the values measured until then are kept, and no host is judged by them"
            actual = f"the operator ended {probe.name}: {kept}"
            finding = Finding("", probe.name, Status.UNKNOWN, "interrupted", actual=actual)
            measured = sum(list(watched.measured), ProbeResult())
            raise RunInterrupt(result + measured + ProbeResult(findings=(finding,))) from error
        except UsageError as error:
            if probe.name in optional:
                note(f"left out: {error.message}")
                left_out = error
            elif isinstance(error, TooFewError) and len(wanted) > 1:
                left_out = error
                too_few += _refused(probe.name, error)
            elif not result.measurements:
                raise
            else:
                result += _refused(probe.name, error)
    if left_out and result == ProbeResult():
        raise left_out
    result += too_few
    return judged(hosts, result, profile_dirs)


def _refused(probe: str, error: UsageError) -> ProbeResult:
    subject = "budget" if isinstance(error, BudgetError) else ""
    finding = Finding("", probe, Status.UNKNOWN, subject, actual=error.message, remedy=error.remedy)
    return ProbeResult(findings=(finding,))
