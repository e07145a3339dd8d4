"""The network sweep: training on one host and on all, and retrieval, at each rate of a lab's or the real links."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from nodectl.articles.gangs import Turns
from nodectl.articles.retrieval import Table, run_retrieval
from nodectl.articles.training import TrainingOptions, run_training
from nodectl.common.counting import counted
from nodectl.errors import LabError, UsageError
from nodectl.facts.base import read_fact
from nodectl.facts.network import NICS_FACT
from nodectl.lab.reshape import described, lab_of, shaping
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult, Run
from nodectl.probes.budget import BudgetError, share_s
from nodectl.probes.endpoints import Endpoint, find_endpoints
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

NAME = "network-sweep"
# what is to be sent costs more than what is to be searched
_ROWS_A_HOST = 2000
_DIM, _K, _BATCH = 768, 100, 64


@dataclass(frozen=True, slots=True)
class LinkRate:
    """The rate at which a row is measured; `put_on` makes it so, where that can be done."""

    name: str | None
    rate_bits: int | None
    put_on: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Hold what was measured at one rate; None for what could not be."""

    link: LinkRate
    one_node: Measurement | None = None
    many_nodes: Measurement | None = None
    retrieval: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows from the lowest rate to the highest, all measurements, and findings."""

    rows: tuple[Row, ...]
    result: ProbeResult

    @property
    def ratio(self) -> float | None:
        """Throughput of many nodes at the highest rate to that at the lowest; None for fewer than two rates."""
        measured = [row.many_nodes for row in self.rows]
        if len(measured) < 2 or measured[0] is None or measured[-1] is None:
            return None
        return measured[-1].value / measured[0].value

    @property
    def rising(self) -> bool | None:
        """More throughput of many nodes at each higher rate; None where that was not measured."""
        values = [row.many_nodes.value for row in self.rows if row.many_nodes]
        if len(values) < 2 or len(values) < len(self.rows):
            return None
        return all(low < high for low, high in pairwise(values))


def table_for(hosts: int, rows: int | None = None, dim: int | None = None, k: int | None = None) -> Table:
    """Return the table that the sweep searches: it grows with the hosts, so that a shard keeps its size."""
    return Table(rows or _ROWS_A_HOST * hosts, dim or _DIM, k or _K, (_BATCH,))


def run_sweep(
    transport: Transport,
    hosts: Sequence[Host],
    links: Sequence[LinkRate],
    options: TrainingOptions,
    table: Table,
    note: Note,
) -> Sweep:
    """All rates in turn within each measurement, which gets its share of the time until `options.ends_at`."""
    if len(hosts) < 2:
        raise UsageError("the network sweep needs two hosts or more, and one is selected", "widen --limit")
    table.check(len(hosts))
    links = sorted(links, key=lambda link: link.rate_bits or 0)
    # none where the links are what they are
    settings = [link.put_on for link in links if link.put_on]
    turns = Turns(transport, settings) if settings else None
    steps: list[tuple[str, Sequence[Host], Run[TrainingOptions]]] = [
        ("one_node", hosts[:1], partial(run_training, turns=turns)),
        ("many_nodes", hosts, partial(run_training, turns=turns)),
        ("retrieval", hosts, partial(run_retrieval, table=table, turns=turns)),
    ]
    cells: list[dict[str, Measurement]] = [{} for _ in links]
    total = ProbeResult()
    for number, (name, members, run) in enumerate(steps):
        note(f"{NAME}: {name.replace('_', ' ')}, links at {', '.join(link.name or 'their own rate' for link in links)}")
        try:
            result = run(transport, members, _with_share(options, len(steps) - number), note)
        except BudgetError as error:
            if not total.measurements:  # nothing is lost by refusing
                raise
            finding = Finding("", NAME, Status.UNKNOWN, "budget", actual=error.message, remedy=error.remedy)
            result = ProbeResult(findings=(finding,))
        measured = [_at(measurement, link) for measurement, link in zip(result.measurements, links, strict=False)]
        for cell, measurement in zip(cells, measured, strict=False):
            cell[name] = measurement
        # who cannot take part is told of once, not by each of the measurements
        fresh = [finding for finding in result.findings if finding not in total.findings]
        total += ProbeResult(tuple(measured), tuple(fresh))
    sweep = Sweep(tuple(Row(link, **cell) for link, cell in zip(links, cells, strict=True)), total)
    return replace(sweep, result=total + ProbeResult(findings=tuple(_flat(sweep))))


def _with_share(options: TrainingOptions, left: int) -> TrainingOptions:
    """Return the options of the next of so many measurements: it ends when its share of the time is over."""
    if options.ends_at is None:
        return options
    now = time.monotonic()
    return replace(options, ends_at=now + share_s(options.ends_at - now, left))


def _at(measurement: Measurement, link: LinkRate) -> Measurement:
    """In a lab the rate was chosen, and is part of what was measured."""
    chosen = {"rate": link.name} if link.put_on else {}
    return replace(measurement, conditions={**measurement.conditions, **chosen, "rate_bits": link.rate_bits})


def _flat(sweep: Sweep) -> list[Finding]:
    """Return a warning for each higher rate that brought nothing."""
    flat = []
    for low, high in pairwise(sweep.rows):
        if low.many_nodes and high.many_nodes and high.many_nodes.value <= low.many_nodes.value:
            actual = (
                f"training on {counted(len(high.many_nodes.hosts), 'host')} is no faster than at {low.link.name}: "
                f"{high.many_nodes.value:.4g} to {low.many_nodes.value:.4g} samples/s"
            )
            remedy = "the network is not what limits it: look at the hosts' processors, or send more with --gradient"
            subject = f"at {high.link.name}"
            flat.append(Finding("", NAME, Status.WARNING, subject, "none", "more samples/s", actual, remedy))
    return flat


# the article's 1, 10 and 20 Gbit/s, scaled to what a few processors can drive
LAB_RATES = (10**8, 10**9, 2 * 10**9)
_MBIT = 10**6


@contextmanager
def lab_links(hosts: Sequence[Host], rates: Sequence[int]) -> Iterator[list[LinkRate] | None]:
    """Links whose rate can be chosen, put back at the end; None where the hosts are no lab's."""
    marked = [host for host in hosts if host.is_true("nodectl_lab")]
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
        yield [LinkRate(described(rate), rate, partial(put_on, rate)) for rate in sorted(set(rates or LAB_RATES))]


def real_links(transport: Transport, hosts: Sequence[Host], options: TrainingOptions, note: Note) -> list[LinkRate]:
    """One link: what the slowest host's interface says of itself."""
    endpoints, _ = find_endpoints(transport, hosts, NAME, options)
    speeds = [
        speed for _, speed in fan_out(endpoints, lambda endpoint: _speed_mbit(transport, endpoint), options.forks)
    ]
    speeds_mbit = [speed for speed in speeds if speed]
    if not speeds_mbit or len(speeds_mbit) < len(hosts):
        note(f"{NAME}: not every host's interface tells its speed: the row has no rate")
        return [LinkRate(None, None)]
    rate_bits = min(speeds_mbit) * _MBIT
    return [LinkRate(described(rate_bits), rate_bits)]


def _speed_mbit(transport: Transport, endpoint: Endpoint) -> int | None:
    recording = collect(transport, endpoint.host, NICS_FACT.commands_on(endpoint.host))
    if not isinstance(recording, Recording):
        return None
    interfaces = read_fact(NICS_FACT, recording)
    nic = interfaces.get(endpoint.interface) if isinstance(interfaces, dict) else None
    return nic.speed_mbit if nic else None
