"""`nodectl probe`: what was measured is kept, and held against what was measured before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.history.compare import Against
    from nodectl.model.comparison import Comparison
    from nodectl.model.finding import Finding
    from nodectl.probes.base import ProbeResult


def wished(text: str | None) -> Against | None:
    """What --compare says, read before anything is measured: a typo costs no minutes."""
    from nodectl.history.compare import read_against

    return None if text is None else read_against(text)


def keep(app: App, found: ProbeResult, against: Against | None) -> tuple[Comparison | None, tuple[Finding, ...]]:
    """Keep the measurements; with `against`, what has changed and drifts since, with findings.

    A history that cannot be written costs a line on stderr, not the result of minutes; one that was asked for is an
    unknown.
    """
    from nodectl.cli.terminal import note
    from nodectl.history.compare import by_identity, compare, findings
    from nodectl.history.store import HistoryError

    compared = None
    if against is not None and against.saved is not None:
        compared = compare(against.text, found.measurements, by_identity(against.saved))
    told: list[Finding] = []
    try:
        if found.measurements:
            from_history, told = _kept(app, found, against)
            compared = compared or from_history
    except HistoryError as error:
        note(f"nodectl: not kept in the history: {error.message}\n  try: {error.remedy}")
        if against is not None and compared is None:
            return None, (_unknown(error),)
    if against is None:
        return None, ()
    compared = compared or compare(against.text, found.measurements, {})
    return compared, (*findings(compared), *told)


def _kept(app: App, found: ProbeResult, against: Against | None) -> tuple[Comparison | None, list[Finding]]:
    from nodectl.common.paths import state_dir
    from nodectl.history.compare import compare
    from nodectl.history.drift import WINDOW, drifts
    from nodectl.history.identity import identity_of
    from nodectl.history.store import FILE, History

    with History(state_dir() / FILE, "\n".join(app.inventory.sources)) as history:
        run = history.add(found.measurements)
        if against is None or against.saved is not None:
            return None, []
        old = history.last(found.measurements, upto=against.upto, before_run=run)
        compared = compare(against.text, found.measurements, old)
        probes = sorted({measurement.probe for measurement in found.measurements})
        measured = {identity_of(measurement).key for measurement in found.measurements}
        drifting = drifts(history.points(probes, WINDOW))
        return compared, [each for key, each in drifting.items() if key in measured]


def _unknown(error: Exception) -> Finding:
    from nodectl.model.finding import Finding
    from nodectl.model.status import Status

    return Finding("", "compare", Status.UNKNOWN, actual=f"no history to compare with: {error}")
