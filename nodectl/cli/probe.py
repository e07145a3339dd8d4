"""`nodectl probe`: measure hosts, pairs and the fleet."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.probes.base import ProbeResult

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class SizeList(click.ParamType[tuple[int, ...]]):
    """`1KiB,64MiB` as bytes."""

    name = "sizes"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self._one(text.strip(), param, ctx) for text in value.split(","))

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([1-9]\d*)\s*([A-Za-z]*)", text)
        if match is None or match[2].upper() not in _UNITS:
            self.fail(f"{text!r} is no size; write 1KiB, 64MiB or a number of bytes", param, ctx)
        return int(match[1]) * _UNITS[match[2].upper()]


@click.command()
@click.argument("names", metavar="NAME[,NAME…]")
@click.option(
    "--duration", type=click.FloatRange(0.001, 3600), help="Seconds of a repetition.  tcp: 3, nccl: 0.05, memory: 0.2."
)
@click.option("--repetitions", type=click.IntRange(1, 100), help="The median counts.  tcp, memory: 3, nccl: 5.")
@click.option("--streams", type=click.IntRange(1, 128), default=1, show_default=True, help="tcp: at the same time.")
@click.option(
    "--pairs",
    type=click.Choice(["auto", "all", "ring", "first", "sample"]),
    default="auto",
    show_default=True,
    help="Which pairs of hosts; auto is all up to 16 hosts, else sample: log2(n) rounds.",
)
@click.option("--sizes", type=SizeList(), default="1MiB,64MiB", show_default=True, help="nccl: message sizes.")
@click.option("--collectives", metavar="NAME[,NAME…]", help="nccl: all_reduce, all_gather, …  Default: all.")
@click.option("--scope", type=click.Choice(["all", "pairs"]), default="all", show_default=True, help="nccl: ranks.")
@click.option("--port", type=click.IntRange(1, 65535), help="Where servers listen.  Default: any free port.")
@click.option("--interface", help="The network to measure.  Default: that of the host's address.")
@click.pass_obj
def probe(
    app: App,
    names: str,
    duration: float | None,
    repetitions: int | None,
    streams: int,
    pairs: str,
    sizes: tuple[int, ...],
    collectives: str | None,
    scope: str,
    port: int | None,
    interface: str | None,
) -> None:
    """Measure hosts, pairs and the fleet.

    tcp: iperf3 between pairs.  nccl: collectives over all hosts.  memory: bandwidth of each host, against the others'.

    Pairs run in rounds in which no host is in two pairs.  Exit status 1: something failed; 3: something could not be
    reached or told.
    """
    from nodectl.cli.terminal import note
    from nodectl.probes.base import ProbeOptions, ProbeResult
    from nodectl.probes.catalogue import chosen

    options = ProbeOptions(
        duration_s=duration,
        repetitions=repetitions,
        sizes_bytes=sizes,
        streams=streams,
        pairs=pairs,
        port=port,
        interface=interface,
        scope=scope,
        collectives=tuple(name.strip() for name in collectives.split(",")) if collectives else (),
        forks=app.forks,
    )
    result = ProbeResult()
    for _, run in chosen(names):
        result += run(app.transport, app.hosts, options, note)
    _show(app, result)


def _show(app: App, found: ProbeResult) -> None:
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.model.status import exit_status
    from nodectl.nodeset import fold
    from nodectl.report.measurements import findings_list, measurements_table

    if app.json:
        measurements = [asdict(each) for each in found.measurements]
        emit_json("probe", {"measurements": measurements, "findings": [asdict(each) for each in found.findings]})
    elif found.measurements:
        result(measurements_table(found.measurements, fold))
    if found.findings:
        note(findings_list(found.findings))
    status = exit_status(finding.status for finding in found.findings)
    if status:
        raise SystemExit(status)
