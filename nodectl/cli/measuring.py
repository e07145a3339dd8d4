"""Shared by commands that measure: the hosts' locks, what is kept and compared with the past, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.paths import state_dir
from nodectl.ledger.history.database import HistoryError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Comparison, Measurement
from nodectl.model.status import Status, exit_status
from nodectl.report.findings import finding_document, findings_text
from nodectl.transport.base import Transport

if TYPE_CHECKING:
    from nodectl.health.fleet import Health
    from nodectl.ledger.history.compare import Against
    from nodectl.probes.base import ProbeResult
    from nodectl.probes.locks import Holds
    from nodectl.recordings.source import Source


def hold(
    app: App,
    what: str,
    *,
    force: bool,
    beside_work: bool = False,
) -> AbstractContextManager[Holds]:
    """Lock the hosts for as long as the block lasts; `what` is shown to others who want them."""
    from nodectl.probes.locks import held

    return held(
        app.transport,
        app.hosts,
        what,
        forks=app.forks,
        force=force,
        note=note,
        beside_work=beside_work,
    )


@contextmanager
def alone(app: App, what: str, *, force: bool, check: bool) -> Iterator[None]:
    """Lock the hosts for a change, except with --check; the process ends, naming the holder, where they are taken."""
    if check:
        yield
        return
    with hold(app, what, force=force, beside_work=True) as holds:
        refuse_taken(app, holds, what, {"run": "", "hosts": {}})
        yield


def refuse_taken(app: App, holds: Holds, name: str, document: Mapping[str, object]) -> None:
    """Say who else uses the hosts; if they are not to be had, end the process with that as its result."""
    if holds.findings:
        note(findings_text(holds.findings))
    if holds.refused:
        app.show(name, {**document, "findings": [finding_document(finding) for finding in holds.findings]}, "")
        raise SystemExit(exit_status(finding.status for finding in holds.findings))


def health_of(app: App, source: Source, names: Mapping[str, str]) -> Health:
    """Judge the hosts, or the replayed recording, by their profiles; these `names` go before the hosts' own."""
    from nodectl.health.fleet import look
    from nodectl.health.history import StateFile

    # a recording is a fleet of its own: what it counts is not held against live hosts
    state = StateFile(state_dir() / "health", f"recorded {source.recorded}" if source.recorded else app.fleet)
    health = look(source, names=names, extra_dirs=app.profile_dirs, state=state, site=app.site_checks)
    for text in health.notes:
        note(f"warning: {text}")
    return health


def look_at(app: App, transport: Transport) -> Callable[[Sequence[Host]], Sequence[Finding]]:
    """Return a function that looks at hosts as `health` does, by this transport."""
    from nodectl.recordings.source import LiveSource

    return lambda hosts: health_of(app, LiveSource(tuple(hosts), transport, app.forks), {}).findings


def keep(app: App, measured: ProbeResult, against: Against | None) -> tuple[Comparison | None, tuple[Finding, ...]]:
    """Keep the measurements and compare them; a history that cannot be written is a note, or unknown if wanted."""
    from nodectl.ledger.history.compare import by_identity, compare, findings

    compared = None
    if against is not None and against.saved is not None:
        compared = compare(against.text, measured.measurements, by_identity(against.saved))
    try:
        if measured.measurements:
            compared = _kept(app, measured.measurements, against) or compared
    except HistoryError as error:
        note_not_kept(error)
        if against is not None and compared is None:
            actual = f"no history to compare with: {error}"
            return None, (Finding("", "compare", Status.UNKNOWN, actual=actual),)
    if against is None:
        return None, ()
    compared = compared or compare(against.text, measured.measurements, {})
    return compared, findings(compared)


def measure(app: App, what: str, run: Callable[[], ProbeResult], *, force: bool) -> ProbeResult:
    """Run a measurement under the hosts' locks and keep it; if they are taken, return the findings that say so."""
    from nodectl.probes.base import ProbeResult

    with hold(app, what, force=force) as holds:
        result = ProbeResult(findings=holds.findings)
        if not holds.refused:
            result += run()
    keep(app, result, None)
    return result


def _kept(app: App, measurements: Sequence[Measurement], against: Against | None) -> Comparison | None:
    from nodectl.ledger.history.compare import compare

    with app.history() as history:
        run = history.add(measurements)
        if against is None or against.saved is not None:
            return None
        return compare(against.text, measurements, history.last(measurements, upto=against.upto, before_run=run))


def note_not_kept(error: HistoryError) -> None:
    """Say on stderr why the history has not got it."""
    note(f"nodectl: not kept in the history: {error.message}\n  try: {error.remedy}")


def conclude(
    app: App,
    name: str,
    document: Mapping[str, object],
    text: str,
    findings: Sequence[Finding],
    *,
    everything: bool = False,
) -> None:
    """Show what was measured, then the findings on stderr; the process ends with their status if that is not 0."""
    app.show(name, document, text)
    if findings:
        note(findings_text(findings, everything=everything))
    if status := exit_status(finding.status for finding in findings):
        raise SystemExit(status)
