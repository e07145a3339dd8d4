"""`nodectl probe`: measure hosts, pairs and the fleet."""

from __future__ import annotations

import re
from dataclasses import asdict
from time import monotonic
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.probe_sizes import Sizes, SweepSizes
from nodectl.cli.seconds import Seconds
from nodectl.common.units import parse_size

if TYPE_CHECKING:
    from nodectl.model.comparison import Comparison
    from nodectl.probes.base import ProbeResult


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
        size = parse_size(text)
        if not size:
            self.fail(f"{text!r} is no size; write 1KiB, 64MiB or a number of bytes", param, ctx)
        return size


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
    type=Seconds(0.001, 3600),
    help="Seconds of a repetition.  tcp: 3, storage: 2, latency: 1 at most, memory, h2d: 0.2, nccl, p2p: 0.05, "
    "gemm, sdc, rdma: 1, hbm: 0.5.",
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
@click.option(
    "--sizes",
    type=SweepSizes(),
    metavar="SIZE,…|A..B|A..max",
    default="1MiB,64MiB",
    show_default=True,
    help="nccl: message sizes; A..B by powers of two (A..B*4: of four), A..max up to the memory's limit.",
)
@click.option("--collectives", metavar="NAME[,NAME…]", help="nccl: all_reduce, all_gather, …  Default: all.")
@click.option(
    "--scope",
    type=click.Choice(["all", "node", "pairs", "rail"]),
    default="all",
    show_default=True,
    help="nccl: all hosts together, each by itself, pairs, or one rail after the other.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "torch", "nccl-tests"]),
    default="auto",
    show_default=True,
    help="nccl: torch.distributed, or NVIDIA's programs where they are installed.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Where servers listen.  Default: any free port.")
@click.option("--interface", help="The network to measure.  Default: that of the host's address.")
@click.option("--path", help="storage: the folder to measure in.  Default: where nodectl keeps checkpoints.")
@click.option(
    "--precisions", metavar="NAME[,NAME…]", help="gemm: bf16, fp16, tf32, fp8, fp32.  Default: what the device is for."
)
@click.option("--operations", metavar="NAME[,NAME…]", help="rdma: write, read, send, write_lat, read_lat, send_lat.")
@click.option(
    "--memory",
    type=click.Choice(["host", "gpu"]),
    default="host",
    show_default=True,
    help="rdma: where messages lie.",
)
@click.option("--device", metavar="NAME[,NAME…]", help="rdma: RDMA devices, or their interfaces.  Default: all.")
@click.option("--gid-index", type=click.IntRange(0, 255), help="rdma: of RoCE.  Default: version 2 with IPv4.")
@click.option("--message-size", type=SizeList(), help="rdma: of a message.  Default: 1MiB, for latency 2 bytes.")
@click.option("--iterations", type=click.IntRange(5, 10_000_000), help="rdma: messages of a run, instead of a time.")
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
    sizes: Sizes,
    collectives: str | None,
    scope: str,
    engine: str,
    port: int | None,
    interface: str | None,
    path: str | None,
    precisions: str | None,
    operations: str | None,
    memory: str,
    device: str | None,
    gid_index: int | None,
    message_size: tuple[int, ...] | None,
    iterations: int | None,
    budget: float | None,
    force: bool,
    compare: str | None,
) -> None:
    """Measure hosts, pairs and the fleet.

    tcp: iperf3 between pairs.  latency: round trips between pairs.  nccl: collectives over all hosts.
    rdma: perftest between pairs, every NIC with its peer.
    memory, storage: bandwidth of each host, against the others'.
    gemm, hbm, p2p, h2d: products and copies on GPUs (gemm also on processors).  sdc: the same bits everywhere?

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
        sizes_bytes=sizes.each,
        to_limit=sizes.grow > 0,
        grow=sizes.grow,
        engine=engine,
        streams=streams,
        pairs="all" if rounds == 0 else pairs,
        rounds=rounds or None,
        port=port,
        interface=interface,
        scope=scope,
        collectives=tuple(name.strip() for name in collectives.split(",")) if collectives else (),
        forks=app.forks,
        path=path,
        precisions=_names(precisions),
        operations=_names(operations),
        memory=memory,
        device=_names(device),
        gid_index=gid_index,
        message_bytes=_one_size(message_size),
        iterations=iterations,
    )
    against, ends_at, wanted = wished(compare), budget and monotonic() + budget, chosen(names)
    what = f"probe {names}"
    with held(app.transport, app.hosts, what, forks=app.forks, force=force, note=note) as holds:
        result = ProbeResult(findings=holds.findings)
        if holds.refused:
            _show(app, result, None)
            return
        result += run_probes(app.transport, app.hosts, wanted, options, ends_at, note, app.profile_dirs)
    compared, noticed = keep(app, result, against)
    _show(app, result + ProbeResult(findings=noticed), compared)


def _names(listed: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",")) if listed else ()


def _one_size(sizes: tuple[int, ...] | None) -> int | None:
    if sizes and len(sizes) > 1:
        raise click.BadParameter("one size only", param_hint="--message-size")
    return sizes[0] if sizes else None


def _show(app: App, found: ProbeResult, compared: Comparison | None) -> None:
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.common.nodeset import fold
    from nodectl.model.status import exit_status
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
