"""Retrieval: exact top-k over an embedding table of which every host holds a shard; the first host asks all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from nodectl.articles.gangs import common, device_of, rank_members, with_torch
from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import fit, given_up, marked
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.events import Event
from nodectl.probes.gang import Played, culprits, failure_of, play
from nodectl.transport.base import Transport

NAME = "retrieval"
# importing torch, making the table
_START_S = 8.0
_WARM_UP_PART = 1.2
_SEED = 1
_RUN_S = 3600.0
# how long a rank waits for the others, of which one may make a large table
_WAIT_S = 300.0
# scores are exact in float32 up to here (payload/articles/retrieval/host.py); requests and answers are below 1 GiB
MOST_DIM = 74_565
_MOST_BYTES = 1 << 30
_BYTES_PER_VALUE, _BYTES_PER_RESULT = 4, 16


@dataclass(frozen=True, slots=True)
class Table:
    """Hold what is searched, and how: queries of each `batches` size at once, the best `k` rows of each."""

    rows: int = 100_000
    dim: int = 256
    k: int = 10
    batches: tuple[int, ...] = (1, 32)

    def check(self, hosts: int) -> None:
        """Raise UsageError if it cannot be searched over so many hosts."""
        if self.dim > MOST_DIM:
            raise UsageError(f"--dim {self.dim}: scores are no longer exact", f"take {MOST_DIM} at most")
        if self.rows < hosts:
            raise UsageError(f"--rows {self.rows} do not make a shard for each of {hosts} hosts", "take more rows")
        if self.k > self.rows:
            raise UsageError(f"--k {self.k} is more than the table's {self.rows} rows", "take fewer")
        largest = max(self.batches)
        if largest * max(_BYTES_PER_VALUE * self.dim, _BYTES_PER_RESULT * self.k) >= _MOST_BYTES:
            raise UsageError(f"--batch {largest}: a request or its answer is larger than 1 GiB", "take fewer")


def run_retrieval(
    transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note, table: Table | None = None
) -> ProbeResult:
    """Milliseconds of a batch of queries, as the first host sees it: the median, with p99."""
    table = table or Table()
    table.check(len(hosts))
    ready, findings = with_torch(transport, hosts, NAME, options)
    if not ready:
        return ProbeResult(findings=tuple(findings))
    cost_s = partial(_cost_s, len(table.batches))
    options, amount = fit(PROBE, options, cost_s=cost_s)
    device = device_of(ready)
    note(
        f"{NAME}: {table.rows} rows of {table.dim} on {counted(len(ready), 'host')}, {device}, "
        f"{time_text(cost_s(amount))} or more{given_up(options)}"
    )
    given = {
        "backend": "gloo",  # queries and answers are in the hosts' memory
        "device": device,
        "rows": table.rows,
        "dim": table.dim,
        "k": table.k,
        "seed": _SEED,
        "batches": ",".join(map(str, table.batches)),
        "runs": amount.repetitions,
        "seconds": amount.duration_s,
    }
    gang = rank_members(ready, [1] * len(ready), "articles.retrieval.host", device, options, given, _WAIT_S)
    played = play(transport, gang, _RUN_S)
    failed = ProbeResult(findings=tuple(failure_of(NAME, culprit) for culprit in culprits(played)))
    return marked(failed + _results(table, ready, played), options)


def _cost_s(batch_sizes: int, amount: Amount) -> float:
    return _START_S + batch_sizes * _WARM_UP_PART * amount.repetitions * amount.duration_s


def _results(table: Table, ready: Sequence[Endpoint], played: Sequence[Played]) -> ProbeResult:
    """Return a measurement for each batch size; nothing of a run that was cut short before its result was checked."""
    checked = played[0].events.of("checked")
    if not checked:
        return ProbeResult()
    started = [event for player in played for event in player.events.of("ready")]
    names = tuple(endpoint.host.name for endpoint in ready)
    conditions = {
        "rows": table.rows,
        "dim": table.dim,
        "k": table.k,
        "shards": len(ready),
        "front": names[0],
        "seed": _SEED,
        "device": common(started, "device"),
        "torch": common(started, "torch"),
        "threads": common(started, "threads"),
        "checked_rows": checked[0]["rows"],
        "checked_queries": checked[0]["queries"],
        "correct": not checked[0]["wrong"] and checked[0]["merged"],
        "interfaces": [endpoint.interface for endpoint in ready],
        "mtu": [endpoint.mtu for endpoint in ready],
    }
    measured = tuple(_measurement(event, names, conditions) for event in played[0].events.of("runs"))
    return ProbeResult(measured, tuple(_wrong(checked[0], names)))


def _measurement(event: Event, names: tuple[str, ...], conditions: dict[str, object]) -> Measurement:
    medians = event["p50_ms"]
    value = median(medians)
    figures = {
        "batch_size": event["batch"],
        "repetitions": len(medians),
        "values_ms": medians,
        "batches_measured": sum(event["counts"]),
        "p50_ms": value,
        "p99_ms": event["p99_ms"],
        "min_ms": event["min_ms"],
        "max_ms": event["max_ms"],
        "queries_s": median(event["queries_s"]),
        # of the slowest shard
        "search_ms": event["search_ms"],
    }
    return Measurement(NAME, names, value, "ms", "", None, spread(medians, value), {**figures, **conditions})


def _wrong(checked: Event, names: tuple[str, ...]) -> list[Finding]:
    """Shards whose answers brute force does not confirm; the merge, where each shard was right."""
    remedy = "run it again; a host that is wrong again has bad memory or a bad processor"
    wrong = [
        host_finding(NAME, names[number], Status.FAILED, "its shard's best rows are not those of brute force", remedy)
        for number in checked["wrong"]
    ]
    if not wrong and not checked["merged"]:
        wrong.append(host_finding(NAME, names[0], Status.FAILED, "the merged best rows are not those of brute force"))
    return wrong


PROBE = Probe(
    name=NAME,
    summary="Exact top-k search of an embedding table of which every host holds a shard.",
    run=run_retrieval,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("ms"),),
        identity=("interfaces", "threads", "device", "batch_size", "rows", "dim", "k", "shards", "rate"),
        shown="top {k} of {rows} x {dim}, {shards} shards",
    ),
    usual=Amount(repetitions=3, duration_s=1.0),
    least=Amount(repetitions=2, duration_s=0.2),
    cost_s=partial(_cost_s, len(Table().batches)),
    between_hosts=True,
    listed=False,
)
