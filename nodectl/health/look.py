"""A look at a fleet: every host judged, compared with the others and with its last reading, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from nodectl.checks.fleet.compare import compare
from nodectl.checks.reboots import REBOOTS_LIMIT, known_faults, with_history
from nodectl.health.judging import LIVE, REPLAYED, Order, Seen, order_of, seen
from nodectl.health.pool import judge_all
from nodectl.health.state import HostState, StateFile
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst
from nodectl.recordings.source import Source


@dataclass(frozen=True, slots=True)
class Health:
    """What was found, the profiles that each host was held against, and which hosts answered from a recording."""

    findings: tuple[Finding, ...]
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> dict[str, Status]:
        """Each host's worst status."""
        statuses: dict[str, set[Status]] = {}
        for found in self.findings:
            statuses.setdefault(found.host, set()).add(found.status)
        return {name: worst(each) for name, each in statuses.items()}


def look(
    source: Source, *, names: Mapping[str, str], extra_dirs: Sequence[Path], state: StateFile, today: date | None = None
) -> Health:
    """Facts against profiles, for all hosts at once; `names` go before the hosts' own profile variables."""
    before = state.read()
    occasions = REPLAYED if source.recorded is not None else LIVE
    readings = {name: each.reading for name, each in before.items()}
    orders = {
        host.name: order_of(host, names, extra_dirs, readings.get(host.name), occasions=occasions)
        for host in source.hosts
    }
    results = {each.host: each for each in _answers(source, orders)}
    found: dict[str, list[Finding]] = {name: list(results[name].findings) for name in orders}
    members = [results[name].member for name in orders]
    for odd in compare([member for member in members if member is not None]):
        found[odd.host].append(odd)
    day = today or datetime.now(UTC).date()
    findings: list[Finding] = []
    states: dict[str, HostState] = {}
    for name, order in orders.items():
        reading = results[name].reading
        old = before[name].faults if name in before else {}
        judged = found[name]
        if reading is not None:
            faults = known_faults(judged, old, reading)
            reboots = order.policy.thresholds.get(REBOOTS_LIMIT.name, REBOOTS_LIMIT.value)
            judged = with_history(judged, faults, reboots)
            states[name] = HostState(reading, faults)
        findings.extend(order.policy.applied(each, day) for each in judged)
    profiles = {name: dict(order.wanted.resolved.names) for name, order in orders.items() if order.wanted.resolved}
    recorded = {name: told for name in orders if (told := results[name].recorded)}
    return Health(tuple(findings), profiles, recorded, _kept(state, states))


def _answers(source: Source, orders: Mapping[str, Order]) -> Iterator[Seen]:
    if source.recorded is not None:
        yield from judge_all(source.one, list(orders.values()))
        return
    for host, answer in source.recordings(lambda host: orders[host.name].commands):
        yield seen(orders[host.name], answer)


def _kept(state: StateFile, states: Mapping[str, HostState]) -> tuple[str, ...]:
    """A look must not fail for a full disk here; what then cannot be compared next time is said."""
    try:
        if states:
            state.write(states)
    except OSError as error:
        return (f"{state.path}: {error.strerror or error}: the next look cannot compare counters with this one",)
    return ()
