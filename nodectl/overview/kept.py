"""The operator's history of a fleet for a report: the latest run, trials, and values over the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.documents import values_of
from nodectl.common.units import format_size
from nodectl.history.database import iso
from nodectl.history.drift import MIN_POINTS, WINDOW, drifts, looked
from nodectl.history.identity import Identity
from nodectl.history.store import History, Point
from nodectl.model.verdict import Verdict
from nodectl.probes.registry import kind_of
from nodectl.report.page.blocks import Nature, Origin
from nodectl.report.page.content import Measured, Past, Trend, Tuned

# the latest runs that together measured all that is measured of late
_RUNS = 12
_MOST_MEDIANS = 12
_MOST_TRIALS = 6


def latest_runs(history: History, nature: Nature) -> tuple[Measured, ...]:
    """Return the latest run of each probe; its number and time stand in its origin."""
    measured, seen = [], set[str]()
    for run, when, probes, _ in history.runs()[:_RUNS]:
        new = set(filter(None, probes.split(","))) - seen
        if not new:
            continue
        seen |= new
        kept = tuple(past.measurement for past in history.past(sorted(new), run=run))
        measured.append(Measured(kept, None, Origin(nature, f"history, run {run} of {iso(when)}")))
    return tuple(measured)


def trials(history: History, nature: Nature) -> tuple[Tuned, ...]:
    """Return the latest trials, each profile once."""
    told: dict[tuple[str, str], Tuned] = {}
    for row in history.trials():
        key = (str(row["profile"]), str(row["baseline"]))
        if key not in told and len(told) < _MOST_TRIALS:
            origin = Origin(nature, f"history, trial {row['id']} of {iso(row['time'])}")
            verdicts = values_of(Verdict, row["trials"], extra="ignore")
            told[key] = Tuned(f"{row['profile']} against {row['baseline']}", key[1], verdicts, origin)
    return tuple(told.values())


def past(history: History, nature: Nature) -> Past:
    """Return what drifts, and the fleet's medians over the runs."""
    points = history.points(history.probes(), WINDOW)
    drifting = drifts(points)
    seen = looked(points)
    by_key: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_key[point.key].append(point)
    trends = []
    for key, finding in drifting.items():
        identity = Identity.of_key(key)
        values = tuple((point.time, point.value) for point in by_key[key])
        trends.append(Trend(identity.label, kind_of(identity.probe).unit(identity.unit), values, finding))
    known = seen.series - seen.short
    enough = f"{known} of them with the {MIN_POINTS} values that drift is told by"
    told = f"{counted(seen.runs, 'run')}, {seen.series} series, {enough}"
    return Past((*trends, *_medians(points)), told, Origin(nature, "history"), known)


def _medians(points: Sequence[Point]) -> Iterator[Trend]:
    """Yield the medians over hosts and paths by run, for each kind of thing measured in two runs or more."""
    runs: dict[tuple[str, ...], dict[int, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        identity = Identity.of_key(point.key)
        size = "" if identity.size_bytes is None else format_size(identity.size_bytes)
        runs[identity.probe, identity.unit, identity.subject, size][point.run].append(point)
    several = {kind: by_run for kind, by_run in runs.items() if len(by_run) > 1}
    # what was measured most often tells most
    for kind in sorted(several, key=lambda kind: (-len(several[kind]), kind))[:_MOST_MEDIANS]:
        probe, unit, subject, size = kind
        values = tuple(
            (alike[0].time, median(point.value for point in alike)) for _, alike in sorted(several[kind].items())
        )
        label = " ".join(filter(None, [probe, subject, size]))
        yield Trend(f"{label}, median of the fleet", kind_of(probe).unit(unit), values)
