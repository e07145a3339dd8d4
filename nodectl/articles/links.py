"""At which rates a fleet can be measured: a lab's links are given each rate, real ones are what they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from nodectl.articles.sweep import NAME, Link
from nodectl.errors import LabError, UsageError
from nodectl.facts import nics
from nodectl.facts.base import read_fact
from nodectl.lab.reshape import described, lab_of, shaping
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.probes.base import Note, ProbeOptions
from nodectl.probes.endpoints import Endpoint, find_endpoints
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

# the article's 1, 10 and 20 Gbit/s, scaled to what a few processors can drive
LAB_RATES = (10**8, 10**9, 2 * 10**9)
_MBIT = 10**6


@contextmanager
def lab_links(hosts: Sequence[Host], rates: Sequence[int]) -> Iterator[list[Link] | None]:
    """Links whose rate can be chosen, put back at the end; None where the hosts are no lab's."""
    marked = [host for host in hosts if _is_lab(host)]
    folder = lab_of(hosts) if marked else None
    if not marked:
        yield None
        return
    if len(marked) < len(hosts):
        raise UsageError("some of the hosts are a lab's and some are not", "choose with --limit")
    if folder is None:
        raise LabError(
            "the hosts are a lab's, and of no lab that is up here: their links cannot be given a rate",
            "run it where the lab was brought up, by the same operator",
        )
    if os.geteuid() != 0:
        raise LabError(f"giving the links of the lab '{folder.name}' another rate needs root", "run it as root")
    with shaping(folder) as put_on:
        yield [Link(described(rate), rate, partial(put_on, rate)) for rate in sorted(set(rates or LAB_RATES))]


def real_links(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> list[Link]:
    """One link: what the slowest host's interface says of itself."""
    endpoints, _ = find_endpoints(transport, hosts, NAME, options)
    speeds = [speed for _, speed in fan_out(endpoints, lambda each: _speed_mbit(transport, each), options.forks)]
    known = [speed for speed in speeds if speed]
    if not known or len(known) < len(hosts):
        note(f"{NAME}: not every host's interface tells its speed: the row has no rate")
        return [Link(None, None)]
    rate_bits = min(known) * _MBIT
    return [Link(described(rate_bits), rate_bits)]


def _speed_mbit(transport: Transport, endpoint: Endpoint) -> int | None:
    recording = collect(transport, endpoint.host, nics.FACT.commands_on(endpoint.host))
    if not isinstance(recording, Recording):
        return None
    interfaces = read_fact(nics.FACT, recording)
    nic = interfaces.get(endpoint.interface) if isinstance(interfaces, dict) else None
    return nic.speed_mbit if nic else None


def _is_lab(host: Host) -> bool:
    mark = host.variables.get("nodectl_lab")
    return mark is True or str(mark).lower() in ("true", "yes", "1")
