"""`nodectl bench retrieval`: options to a table, one measurement, one answer."""

from __future__ import annotations

from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.bench.options import Counts, measuring
from nodectl.cli.option_types import Seconds

if TYPE_CHECKING:
    from nodectl.probes.base import ProbeResult


@click.command()
@click.option("--rows", type=click.IntRange(1, 2**40), default=100_000, show_default=True, help="Of the whole table.")
@click.option("--dim", type=click.IntRange(1), default=256, show_default=True, help="Values of a row.")
@click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Best rows of each query.")
@click.option("--batch", type=Counts(), default="1,32", show_default=True, help="Queries at a time; several sizes.")
@click.option("--duration", type=Seconds(0.05, 3600), help="Seconds of a repetition.  Default: 1.")
@measuring
@click.pass_obj
def retrieval(
    app: App,
    rows: int,
    dim: int,
    k: int,
    batch: tuple[int, ...],
    duration: float | None,
    repetitions: int | None,
    port: int | None,
    interface: str | None,
    budget: float | None,
    force: bool,
) -> None:
    """Exact top-k over an embedding table of which every host holds a shard: latency and queries per second.

    The first host asks all shards and merges their answers.  A few queries are checked against brute force.  Exit
    status 1: something failed or is wrong; 3: a host could not be reached or has no torch.
    """
    from nodectl.articles.retrieval import Table, run_retrieval
    from nodectl.cli.probe_history import keep
    from nodectl.cli.terminal import note
    from nodectl.probes.base import ProbeOptions, ProbeResult
    from nodectl.probes.locks import held

    table = Table(rows, dim, k, batch)
    table.check(len(app.hosts))
    options = ProbeOptions(
        duration_s=duration,
        repetitions=repetitions,
        port=port,
        interface=interface,
        forks=app.forks,
        ends_at=budget and monotonic() + budget,
    )
    with held(app.transport, app.hosts, "bench retrieval", forks=app.forks, force=force, note=note) as holds:
        result = ProbeResult(findings=holds.findings)
        if not holds.refused:
            result += run_retrieval(app.transport, app.hosts, options, note, table)
    keep(app, result, None)
    _show(app, result)


def _show(app: App, found: ProbeResult) -> None:
    from nodectl.articles.document import retrieval_table
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.model.status import exit_status
    from nodectl.report.findings import findings_list

    if app.json:
        document: dict[str, object] = {"measurements": [asdict(measurement) for measurement in found.measurements]}
        emit_json("bench-retrieval", {**document, "findings": [asdict(row) for row in found.findings]})
    elif found.measurements:
        result(retrieval_table(found.measurements))
    if found.findings:
        note(findings_list(found.findings))
    status = exit_status(finding.status for finding in found.findings)
    if status:
        raise SystemExit(status)
