"""`nodectl probe`: Measure hosts, pairs and the fleet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

import click

from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import hold, keep
from nodectl.cli.options import FILE, FORCE_HELP, WRITE_HELP, OneOf, Read, output_option, take_global_options
from nodectl.cli.options import Seconds as SecondsType
from nodectl.cli.terminal import as_json, note, put, terminal_width
from nodectl.common.counting import counted
from nodectl.common.process import interruptible
from nodectl.errors import UsageError
from nodectl.ledger.history.compare import read_against
from nodectl.model.measurement import Comparison
from nodectl.model.status import exit_status
from nodectl.probes import quick
from nodectl.probes.base import BETWEEN_HOSTS, GROUPS, Amount, ProbeOptions, ProbeResult
from nodectl.probes.lost import Watched
from nodectl.probes.options import Choice, Declared, Kind, Seconds, Text, Whole, declared, duration
from nodectl.probes.registry import AnyProbe, chosen, group, kind_of, listed
from nodectl.probes.series import RunInterrupt, run_probes
from nodectl.report.findings import findings_text
from nodectl.report.measurements import comparison_table, measurements_text
from nodectl.report.metrics import probe_metrics
from nodectl.transport.base import Transport

QUICK = "quick"
_END_S, _END_PART = 4.0, 0.05
# after Ctrl-C the locks are let go and what was measured is kept and shown; a further Ctrl-C is heard only then
_INTERRUPTED_END_S = 10.0
_HELP = ("-h", "--help")
_EXIT_STATUS = "Exit status 1: something failed; 3: something could not be reached or told."


class _ProbeGroup(click.Group):
    """Its commands are the probes; a list of them, or a group's name, is a command too.  No name at all is `quick`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {probe.name for probe in listed()} | set(GROUPS)
        is_quick = not args or (args[0].startswith("-") and not names.intersection(args) and args[0] not in _HELP)
        return super().parse_args(ctx, [QUICK, *args] if is_quick and not ctx.resilient_parsing else args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [probe.name for probe in listed()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        command = output_option("table", "json", "prometheus")(_command(cmd_name))
        return take_global_options(include_cordoned_option(command))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Probes"):
            formatter.write_dl([(probe.name, probe.summary) for probe in listed()])
        with formatter.section("Groups"):
            members = {name: ", ".join(probe.name for probe in group(name)) for name in GROUPS}
            formatter.write_dl(
                [
                    (name, f"{about}: {members[name]}." if name != "all" else f"{about}.")
                    for name, about in GROUPS.items()
                ]
            )


@click.command(cls=_ProbeGroup, subcommand_metavar="[NAME[,NAME…]] [OPTIONS]")
def probe() -> None:
    """Measure hosts, pairs and the fleet.

    One probe with its own options (nodectl probe tcp --help), or several, or a group, with the common ones (nodectl
    probe tcp,memory --help).  Without a name: what fits these hosts within two minutes, and what was left out.

    Pairs run in rounds in which no host is in two pairs.  Exit status 1: something failed; 3: something could not be
    reached or told.
    """


class _Command(click.Command):
    """Its settings are those of `[probe.NAME]`, over `[probe]`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        app = parent.find_object(App) if parent else None
        if app is not None:
            extra["default_map"] = app.defaults_for(["probe", str(info_name)])
        return super().make_context(info_name, args, parent, **extra)


def _command(names: str) -> click.Command:
    probes = chosen(names)
    alone = probes[0] if names == probes[0].name else None
    between = any(probe.between_hosts for probe in probes)
    common = [option for option in declared(ProbeOptions) if between or option.field not in BETWEEN_HOSTS]
    special = _own(alone) if alone else ()

    @click.pass_context
    def run(ctx: click.Context, /, **given: Any) -> None:
        app = ctx.ensure_object(App)
        shared = ProbeOptions(**_values(common, given), forks=app.forks)
        own = {probe.name: _values(special, given) if alone else _from_settings(probe, ctx.parent) for probe in probes}
        _measure(app, [(probe, probe.given(shared, **own[probe.name])) for probe in probes], names, given)

    usual, name = (alone.usual, alone.name) if alone else (None, "")
    params = [_click_option(option, name, usual) for option in (*special, *common)]
    about = [alone.summary, alone.help] if alone else [f"{names}, one after the other, with their common options."]
    text = "\n\n".join(filter(None, [*about, _EXIT_STATUS]))
    return _Command(names, callback=run, params=[*params, *_run_options()], help=text)


def _own(probe: AnyProbe) -> tuple[Declared, ...]:
    common = {option.field for option in declared(ProbeOptions)}
    return tuple(option for option in declared(probe.options) if option.field not in common)


def _from_settings(probe: AnyProbe, parent: click.Context | None) -> dict[str, Any]:
    """Return what the environment and nodectl.toml say of a probe's own options, for a run of several probes."""
    special = _own(probe)
    command = _Command(probe.name, params=[_click_option(option, probe.name) for option in special])
    with command.make_context(probe.name, [], parent) as ctx:
        return _values(special, ctx.params)


def _click_option(declared_option: Declared, probe: str = "", usual: Amount | None = None) -> click.Option:
    option, field = declared_option.option, declared_option.field
    name = _parameter_name(declared_option)
    value = declared_option.value
    shown = option.default or (str(value) if value not in (None, ()) else "")
    if usual is not None and field in ("duration_s", "repetitions"):
        shown = f"{getattr(usual, field):g}"
    return click.Option(
        [name, declared_option.flag],
        type=_type(option.kind),
        help=option.help + (f"  Default: {shown}." if shown else ""),
        metavar=getattr(option.kind, "metavar", None),
        envvar=[*([f"NODECTL_PROBE_{probe}_{name}".upper()] if probe else []), f"NODECTL_PROBE_{name}".upper()],
    )


def _parameter_name(option: Declared) -> str:
    return option.flag.strip("-").replace("-", "_")


def _type(kind: Kind) -> click.ParamType[Any]:
    match kind:
        case Whole(least, most):
            return click.IntRange(least, most)
        case Seconds(shortest, longest):
            return SecondsType(shortest, longest)
        case Choice(words):
            return OneOf(words)
        case Text(_, read):
            return Read(read)


def _values(options: Sequence[Declared], given: Mapping[str, Any]) -> dict[str, Any]:
    values = {option.field: given.get(_parameter_name(option)) for option in options}
    return {field: value for field, value in values.items() if value is not None}


def _run_options() -> list[click.Option]:
    options = [
        click.Option(
            ["--budget"],
            type=Read(duration),
            metavar="SECONDS|5m",
            help="For all of it: repetitions, their length and rounds are cut down to fit, and a probe that cannot is "
            "refused.",
        ),
        click.Option(["--force"], is_flag=True, help=FORCE_HELP),
        click.Option(
            ["--compare"],
            metavar="LAST|DATE|FILE",
            help="Compare with the history (LAST or a date), or with a saved `probe --output json`.",
        ),
        click.Option(["--all", "everything"], is_flag=True, help="Show each value and each finding in the table."),
        click.Option(["--write"], type=FILE, help=WRITE_HELP),
    ]
    for option in options:
        option.envvar = f"NODECTL_PROBE_{option.opts[0].strip('-')}".upper()
    return options


@interruptible(deaf_s=_INTERRUPTED_END_S)
def _measure(app: App, wanted: list[tuple[AnyProbe, ProbeOptions]], names: str, given: Mapping[str, Any]) -> None:
    # read before anything is measured: a typo costs no minutes
    against = None if given["compare"] is None else read_against(given["compare"])
    budget = given["budget"]
    interrupted = False
    with hold(app, f"probe {names}", force=given["force"]) as holds:
        ends_at = budget and monotonic() + budget - _end_s(budget)
        result = ProbeResult(findings=holds.findings)
        if holds.refused:
            _show(app, result, None, given)
            return
        transport = Watched(app.transport, holds.heard, holds.unreached())
        optional = {probe.name for probe, _ in wanted} - {name.strip() for name in names.split(",")}
        if names == QUICK:
            wanted, ends_at = _quick(app, transport, wanted, ends_at)
        try:
            result += run_probes(transport, app.hosts, wanted, ends_at, note, app.profile_dirs, optional)
        except RunInterrupt as end:
            interrupted, result = True, result + end.result
    compared, noticed = keep(app, result, against)
    try:
        _show(app, result + ProbeResult(findings=noticed), compared, given)
    finally:
        if interrupted:
            kept = counted(len(result.measurements), "measurement is", "measurements are")
            note(f"ended early: {kept} kept (`nodectl history`)")
            raise KeyboardInterrupt


def _quick(
    app: App, transport: Transport, wanted: list[tuple[AnyProbe, ProbeOptions]], ends_at: float | None
) -> tuple[list[tuple[AnyProbe, ProbeOptions]], float]:
    """Return the probes that fit the hosts within the time, and when all is to end."""
    ends_at = ends_at or monotonic() + quick.BUDGET_S - _end_s(quick.BUDGET_S)
    choice = quick.choose(transport, app.hosts, ends_at, app.forks)
    for line in choice.left_out:
        note(f"left out: {line}")
    if not choice.probes:
        raise UsageError("nothing is left to measure on these hosts", "name a probe: nodectl probe --help")
    options = {probe.name: probe_options for probe, probe_options in wanted}
    return [(probe, options[probe.name]) for probe in choice.probes], ends_at


def _end_s(budget_s: float) -> float:
    """Return what is kept of a budget for the end: locks are let go, results judged, kept and shown."""
    return min(_END_S, _END_PART * budget_s)


def _show(app: App, result: ProbeResult, compared: Comparison | None, given: Mapping[str, Any]) -> None:
    findings = result.findings
    everything, form, write = given["everything"], app.output, given["write"]
    text = _rendered(result, compared, form, everything=everything)
    if text or write is not None:
        put(text.rstrip("\n"), write)
    if findings:
        note(findings_text(findings, everything=everything))
    if status := exit_status(finding.status for finding in findings):
        raise SystemExit(status)


def _rendered(result: ProbeResult, compared: Comparison | None, form: str, *, everything: bool) -> str:
    measured, findings = result.measurements, result.findings
    if form == "prometheus":
        return probe_metrics(measured, findings, kind_of, time_s=time.time())
    if form == "json":
        return as_json("probe", asdict(result) | ({"comparison": asdict(compared)} if compared is not None else {}))
    if not measured:
        return ""
    tables = [measurements_text(measured, kind_of, findings, everything=everything, width=terminal_width())]
    tables += [comparison_table(compared, kind_of, everything=everything)] if compared is not None else []
    return "\n\n".join(tables)
