"""`nodectl probe`: measure hosts, pairs and the fleet."""

from __future__ import annotations

import re
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.model.comparison import Comparison
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


class Rounds(click.ParamType[int]):
    """A number of rounds, or `all`, which is 0."""

    name = "rounds"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or value == "all":
            return value if isinstance(value, int) else 0
        if not re.fullmatch(r"[1-9]\d{0,5}", value):
            self.fail(f"{value!r} is no number of rounds; write 10, or all for every pair", param, ctx)
        return int(value)


class Duration(click.ParamType[float]):
    """`90`, `90s`, `5m` or `1h` as seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smh]?)", value.strip())
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is no time; write 90, 90s, 5m or 1h", param, ctx)
        return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@click.command()
@click.argument("names", metavar="NAME[,NAME…]")
@click.option(
    "--duration",
    type=click.FloatRange(0.001, 3600),
    help="Seconds of a repetition.  tcp: 3, storage: 2, latency: 1 at most, memory: 0.2, nccl: 0.05.",
)
@click.option("--repetitions", type=click.IntRange(1, 100), help="The median counts.  nccl: 5, others: 3.")
@click.option("--streams", type=click.IntRange(1, 128), default=1, show_default=True, help="tcp: at the same time.")
@click.option(
    "--pairs",
    type=click.Choice(["auto", "all", "ring", "first", "sample"]),
    default="auto",
    show_default=True,
    help="Which pairs of hosts; auto is all up to 16 hosts, else sample: log2(n) rounds.",
)
@click.option(
    "--rounds",
    type=Rounds(),
    metavar="N|all",
    help="tcp: N rounds drawn by chance, each host with another partner in each; all: every pair.  Not with --pairs.",
)
@click.option("--sizes", type=SizeList(), default="1MiB,64MiB", show_default=True, help="nccl: message sizes.")
@click.option("--collectives", metavar="NAME[,NAME…]", help="nccl: all_reduce, all_gather, …  Default: all.")
@click.option("--scope", type=click.Choice(["all", "pairs"]), default="all", show_default=True, help="nccl: ranks.")
@click.option("--port", type=click.IntRange(1, 65535), help="Where servers listen.  Default: any free port.")
@click.option("--interface", help="The network to measure.  Default: that of the host's address.")
@click.option("--path", help="storage: the folder to measure in.  Default: where nodectl keeps checkpoints.")
@click.option(
    "--budget",
    type=Duration(),
    metavar="SECONDS|5m",
    help="For all of it: repetitions, their length and rounds are cut down to fit, and a probe that cannot is refused.",
)
@click.option("--force", is_flag=True, help="Go on on hosts that another nodectl, a job or a process on a GPU uses.")
@click.option("--compare", metavar="LAST|DATE|FILE", help="Beside the history, or a saved `probe --output json`.")
@click.pass_obj
def probe(
    app: App,
    names: str,
    duration: float | None,
    repetitions: int | None,
    streams: int,
    pairs: str,
    rounds: int | None,
    sizes: tuple[int, ...],
    collectives: str | None,
    scope: str,
    port: int | None,
    interface: str | None,
    path: str | None,
    budget: float | None,
    force: bool,
    compare: str | None,
) -> None:
    """Measure hosts, pairs and the fleet.

    tcp: iperf3 between pairs.  latency: round trips between pairs.  nccl: collectives over all hosts.
    memory, storage: bandwidth of each host, against the others'.

    Pairs run in rounds in which no host is in two pairs.  Exit status 1: something failed; 3: something could not be
    reached or told.
    """
    from nodectl.cli.probe_history import keep, wished
    from nodectl.cli.terminal import note
    from nodectl.errors import UsageError
    from nodectl.probes.base import ProbeOptions, ProbeResult
    from nodectl.probes.catalogue import chosen
    from nodectl.probes.locks import held
    from nodectl.probes.series import run_probes

    if rounds is not None and pairs != "auto":
        raise UsageError("--rounds and --pairs both say which pairs to measure", "give one of them")
    options = ProbeOptions(
        duration_s=duration,
        repetitions=repetitions,
        sizes_bytes=sizes,
        streams=streams,
        pairs="all" if rounds == 0 else pairs,
        rounds=rounds or None,
        port=port,
        interface=interface,
        scope=scope,
        collectives=tuple(name.strip() for name in collectives.split(",")) if collectives else (),
        forks=app.forks,
        path=path,
    )
    against, ends_at, wanted = wished(compare), budget and monotonic() + budget, chosen(names)
    what = f"probe {names}"
    with held(app.transport, app.hosts, what, forks=app.forks, force=force, note=note) as holds:
        result = ProbeResult(findings=holds.findings)
        if holds.refused:
            _show(app, result, None)
            return
        result += run_probes(app.transport, app.hosts, wanted, options, ends_at, note)
    compared, noticed = keep(app, result, against)
    _show(app, result + ProbeResult(findings=noticed), compared)


def _show(app: App, found: ProbeResult, compared: Comparison | None) -> None:
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.model.status import exit_status
    from nodectl.nodeset import fold
    from nodectl.report.comparison import comparison_table
    from nodectl.report.measurements import findings_list, measurements_table

    if app.json:
        document: dict[str, object] = {"measurements": [asdict(each) for each in found.measurements]}
        document["findings"] = [asdict(each) for each in found.findings]
        if compared is not None:
            document["comparison"] = asdict(compared)
        emit_json("probe", document)
    elif found.measurements:
        result(measurements_table(found.measurements, fold))
        if compared is not None:
            result(f"\n{comparison_table(compared, fold)}")
    if found.findings:
        note(findings_list(found.findings))
    status = exit_status(finding.status for finding in found.findings)
    if status:
        raise SystemExit(status)
