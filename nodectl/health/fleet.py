"""A look at a fleet: every host judged, compared with the others and with its last reading, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from nodectl.checks.fleet.compare import compare
from nodectl.checks.judge import after_causes, all_traces_first, not_judged
from nodectl.health.history import StateFile
from nodectl.health.host import LIVE, REPLAYED, HostHealth, Order, judge_answer, order_of
from nodectl.health.site import SiteCheck
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst
from nodectl.recordings.source import Source


@dataclass(frozen=True, slots=True)
class Health:
    """All findings, the profiles that each host was held against, and which hosts answered from a recording."""

    findings: tuple[Finding, ...]
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> dict[str, Status]:
        """Each host's worst status."""
        statuses: dict[str, set[Status]] = {}
        for finding in self.findings:
            statuses.setdefault(finding.host, set()).add(finding.status)
        return {host: worst(its) for host, its in statuses.items()}


def look(
    source: Source,
    *,
    names: Mapping[str, str],
    extra_dirs: Sequence[Path],
    state: StateFile,
    today: date | None = None,
    site: Sequence[SiteCheck] | None = None,
) -> Health:
    """Facts against profiles, for all hosts at once; `names` go before the hosts' own profile variables.

    `site` are the checks of its own that a site has beside its inventory, None if there is no inventory.
    """
    before = state.read()
    occasions = REPLAYED if source.recorded is not None else LIVE
    orders = {
        host.name: order_of(host, names, extra_dirs, before.get(host.name), occasions=occasions, site=site)
        for host in source.hosts
    }
    results = {result.host: result for result in _results(source, orders)}
    by_host: dict[str, list[Finding]] = {name: list(results[name].findings) for name in orders}
    members = [member for name in orders if (member := results[name].member) is not None]
    for difference in compare(members):
        by_host[difference.host].append(difference)
    day = today or datetime.now(UTC).date()
    findings: list[Finding] = []
    for name, order in orders.items():
        judged, accepts = all_traces_first(after_causes(by_host[name])), order.policy.accept
        findings.extend([order.policy.applied(finding, day) for finding in judged] if accepts else judged)
    profiles = {name: dict(order.wanted.resolved.names) for name, order in orders.items() if order.wanted.resolved}
    recorded = {name: recording for name in orders if (recording := results[name].recorded)}
    readings = {name: reading for name in orders if (reading := results[name].reading) is not None}
    notes: tuple[str, ...] = ()
    try:
        if readings:
            state.write(readings)
    except OSError as error:  # a full disk here fails no look
        notes = (f"{state.path}: {error.strerror or error}: the next look cannot compare counters with this one",)
    return Health(tuple(findings), profiles, recorded, notes)


def _results(source: Source, orders: Mapping[str, Order]) -> Iterator[HostHealth]:
    for host, answer in source.recordings(lambda host: orders[host.name].commands):
        order = orders[host.name]
        try:
            yield judge_answer(order, answer)
        except Exception as error:  # what nobody thought a host could print
            yield HostHealth(host.name, (*order.wanted.findings, not_judged(host.name, error)))
