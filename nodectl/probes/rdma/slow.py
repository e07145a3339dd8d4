"""Which NIC is slower than the others of its host, and than those of other hosts, by tests of each host by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from nodectl.common.natural import natural
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.outliers import Comparison, Slow, SlowOne, slow, slow_finding

_ALIKE = ("operation", "memory", "way", "link_layer", "rate_gbit_s")
_COMPARISON = Comparison(
    lambda measurement: tuple(str(measurement.conditions[name]) for name in _ALIKE), series="operation"
)
_REMEDY = (
    "look at its PCIe link (width and speed: `nodectl health`), cable and error counters; measure once more with "
    "nothing else running"
)


def ends_of(measurement: Measurement) -> frozenset[str]:
    """The ports between which it was taken, one where that is a port with itself."""
    device = measurement.conditions["device"]
    return frozenset(map(str, device)) if isinstance(device, list | tuple) else frozenset()


def slow_ones(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> list[SlowOne]:
    """The NICs below the others of all hosts of a hardware profile: `direction` is host and port, `nic` the port."""
    return _COMPARISON.slow_ones(_of_nics(measurements), hosts)


def _of_nics(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Of each NIC the better one of its links, which is as good as its slower direction: a slow neighbour is not its
    fault.
    """
    links: dict[tuple[str, str, frozenset[str]], Measurement] = {}
    for measurement in measurements:
        link = measurement.hosts[0], str(measurement.conditions["way"]), ends_of(measurement)
        if measurement.value <= links.setdefault(link, measurement).value:
            links[link] = measurement
    nics: dict[tuple[str, str, str], list[Measurement]] = defaultdict(list)
    for (host, way, ports), measurement in links.items():
        for port in ports:
            nics[host, way, port].append(measurement)
    best = {nic: max(own, key=lambda measurement: measurement.value) for nic, own in nics.items()}
    return [
        replace(best[nic], direction=f"{nic[0]} {nic[2]}").with_conditions(nic=nic[2], links=len(nics[nic]))
        for nic in sorted(nics, key=lambda nic: (nic[0], natural(nic[2])))
    ]


def undecided(found: Sequence[SlowOne]) -> dict[tuple[str, str], frozenset[str]]:
    """By host and port the two ports that have only each other, so that either may be the slow one."""
    links: dict[tuple[str, frozenset[str]], set[str]] = defaultdict(set)
    for measurement, _ in found:
        if measurement.conditions["links"] == 1:
            links[measurement.hosts[0], ends_of(measurement)].add(str(measurement.conditions["nic"]))
    return {(host, port): ports for (host, ports), own in links.items() if len(own) > 1 for port in own}


def decided(found: Sequence[SlowOne], loopbacks: Sequence[Measurement]) -> list[SlowOne]:
    """Return it without those of two whose loopback is well, where that of the other one is not."""
    well = set()
    for (host, _), ports in undecided(found).items():
        values = {port: row.value for row in loopbacks if row.hosts == (host,) for port in ends_of(row) & ports}
        if len(values) > 1 and slow(values, values):
            well.add((host, max(values, key=values.__getitem__)))
    return [one for one in found if _nic(one) not in well]


def slow_findings(found: Sequence[SlowOne]) -> list[Finding]:
    """One for each NIC; one for two of which it cannot be told."""
    unsure, findings = undecided(found), []
    for measurement, one in found:
        host, port = _nic((measurement, one))
        ports = sorted(unsure.get((host, port), {port}), key=natural)
        if port == ports[0]:
            findings.append(_finding(measurement, one, ports))
    return findings


def _nic(one: SlowOne) -> tuple[str, str]:
    return one[0].hosts[0], str(one[0].conditions["nic"])


def _finding(measurement: Measurement, one: Slow, ports: Sequence[str]) -> Finding:
    subject = f"{measurement.conditions['operation']} of {' or '.join(ports)}"
    found = slow_finding((measurement, one), subject, _REMEDY, digits=".4g", other="the other NIC has")
    return replace(found, actual=f"{' or '.join(ports)}, {measurement.conditions['way']}: {found.actual}")
