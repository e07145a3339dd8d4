"""The nominal rate of links: where all fall far short of it alike, no host stands out, and yet all is slow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import median

from nodectl.common.nodeset import fold
from nodectl.common.units import format_value
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.endpoints import Endpoint, on_one_machine

# what load may do to a flow between two hosts of one machine: half, as a logarithm
_LOAD_EFFECT = math.log(2)
# even the best of all is below this part
_SHORT = 0.6
# of a faster link one flow is not expected to carry more: its processors may not
_OF_ONE_FLOW_GBIT_S = 10.0
# the rate that the operator says the host's link has, if the kernel does not tell, or tells another
VARIABLE = "nodectl_link_rate"
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([kmgt]?)(?:bit)?(?:/s)?", re.IGNORECASE)
# RDMA devices in software, whose rate means nothing
_SOFTWARE = ("rxe", "siw")
_GBIT_S = {"k": 1e-6, "m": 1e-3, "": 1.0, "g": 1.0, "t": 1e3}
_REMEDY = (
    "look at what all have in common: the rate that switches agree on, a limit or a policer, MTU; "
    f"where the links are really slower, say so with the variable {VARIABLE}"
)


def link_rate_gbit_s(host: Host, speed_mbit: int | None) -> float | None:
    """Return the link's rate by the inventory (`25gbit`), else by its interface; None if nobody tells."""
    rate = _RATE.fullmatch(str(host.variables.get(VARIABLE, "")).strip())
    if rate:
        return float(rate[1]) * _GBIT_S[rate[2].lower()] or None
    return speed_mbit / 1e3 if speed_mbit else None


def least_effect(ready: Sequence[Endpoint]) -> float:
    """Return what a shared machine's processors may do to links that nothing else limits, as a logarithm; else 0."""
    unlimited = any(link_rate_gbit_s(end.host, end.speed_mbit) is None for end in ready)
    return _LOAD_EFFECT if unlimited and on_one_machine(ready) else 0.0


def all_short(probe: str, measurements: Sequence[Measurement], flows: int | None = None) -> tuple[Finding, ...]:
    """One warning where every measurement is far below the slower of its ends' `rate_gbit_s`.

    `flows` share a link, where they are what limits it.
    """
    expected = {id(row): _expected(row.conditions, flows) for row in measurements}
    rated = [(row, rate) for row in measurements if (rate := expected[id(row)])]
    if len(rated) < len(measurements) or len(rated) < 2 or any(row.value >= _SHORT * rate for row, rate in rated):
        return ()
    hosts = tuple(dict.fromkeys(name for row, _ in rated for name in row.hosts))
    values, rates = [row.value for row, _ in rated], [rate for _, rate in rated]
    unit, usual = rated[0][0].unit, median(values)
    return (
        Finding(
            hosts[0],
            probe,
            Status.WARNING,
            "all are slow",
            expected=f"about {format_value(median(rates), unit)}, the links' own rate",
            actual=f"all {len(rated)} directions {'between' if len(hosts) > 1 else 'in'} {fold(hosts)} reach "
            f"{format_value(min(values), unit)} to "
            f"{format_value(max(values), unit)}: {100 * usual / median(rates):.0f} % of the links' rate",
            remedy=_REMEDY,
            hosts=hosts,
        ),
    )


def _expected(given: Mapping[str, object], flows: int | None) -> float | None:
    rates, devices = given.get("rate_gbit_s"), given.get("device")
    if isinstance(devices, list | tuple) and any(str(device).startswith(_SOFTWARE) for device in devices):
        return None
    if not isinstance(rates, list | tuple) or not all(isinstance(rate, int | float) for rate in rates):
        return None
    least = min(map(float, rates), default=0.0)
    return min(least, flows * _OF_ONE_FLOW_GBIT_S) if flows else least
