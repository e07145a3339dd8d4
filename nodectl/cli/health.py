"""`nodectl health`: Compare every host with its profiles."""

from __future__ import annotations

import time
from pathlib import Path

import click

from nodectl.checks.catalogue import checks, launch_checks, reads, thresholds
from nodectl.cli.app import App
from nodectl.cli.cordoned import note_cordoned
from nodectl.cli.events import report_health
from nodectl.cli.measuring import health_of
from nodectl.cli.options import (
    FILE,
    WRITE_HELP,
    OneOf,
    Seconds,
    option,
    option_group,
    output_option,
    takes,
)
from nodectl.cli.terminal import as_json, note, put, result
from nodectl.common.nodeset import fold
from nodectl.errors import InventoryError
from nodectl.facts.base import is_denied
from nodectl.health.fleet import Health
from nodectl.health.site import for_nobody, listed_as
from nodectl.health.slurm import refuse_other_nodes, update_node
from nodectl.model.status import Status, exit_status
from nodectl.profiles.host import check_names
from nodectl.report.findings import changes, counts, finding_document, findings_table, junit, one_line
from nodectl.report.table import aligned

_WATCH_S = 60.0


@option_group
class _Options:
    one_line: bool = option("--one-line", "Print the worst status and its findings on one line, for a prolog.")
    everything: bool = option("--all", "Show each finding in the table, and what is ok or skipped, too.")
    strict: bool = option("--strict", "End with 1 for warnings, too.")
    unknown: str | None = option(
        "--unknown",
        "fail: 3 (could not be told) becomes 1. ok: 0, where only this login's rights hide it.",
        type=OneOf(["ok", "fail"]),
    )
    drain: bool = option("--drain", "On a node of Slurm: drain it if a check fails, with the finding as the reason.")
    resume: bool = option("--resume", "With --drain: return the node when nothing fails, if --drain had drained it.")
    write: Path | None = option("--write", WRITE_HELP, type=FILE)
    watch: float | None = option(
        "--watch",
        f"Look again every {_WATCH_S:g} s or SECONDS, and print what changed.",
        is_flag=False,
        flag_value=_WATCH_S,
        type=Seconds(min=1),
        metavar="[SECONDS]",
    )
    rounds: int | None = option("--rounds", "With --watch: end after this number of looks.", type=click.IntRange(min=1))
    listed: bool = option("--list", "List the checks and their thresholds; no host is asked.")
    hardware: str | None = option("--hardware", "Instead of the hosts' nodectl_hardware.", metavar="NAME")
    stack: str | None = option("--stack", "Instead of the hosts' nodectl_stack.", metavar="NAME")
    tuning: str | None = option("--tuning", "Instead of the hosts' nodectl_tuning.", metavar="NAME")


@click.command()
@takes(_Options)
@output_option("table", "json", "junit", "prometheus")
@click.pass_obj
def health(app: App, asked: _Options) -> None:
    """Hold every host against its profiles, its last reading and the other hosts: one round trip a host.

    Nothing is changed there.  Ends with 1 if any check failed, else 3 if anything could not be told or reached, else 0.
    """
    _refuse_pairs(app, one_line=asked.one_line, listed=asked.listed)
    if asked.listed:
        _list(app)
        return
    if asked.resume and not asked.drain:
        raise click.UsageError("--resume goes with --drain")
    if asked.drain:
        refuse_other_nodes(app.hosts)
    if asked.rounds and asked.watch is None:
        raise click.UsageError("--rounds goes with --watch")
    if app.replay is None:
        note_cordoned(app, app.hosts, "in the ledger")
    hook = app.on_event() if app.replay is None else ()
    given = {"hardware": asked.hardware, "stack": asked.stack, "tuning": asked.tuning}
    names = {kind: name for kind, name in given.items() if name}
    shape = "one-line" if asked.one_line else app.output
    check_names(names, app.profile_dirs)
    for text in for_nobody(app.site_checks, app.source.hosts):
        note(f"warning: {text}")
    before, looks = None, 0
    while True:
        health = health_of(app, app.source, names)
        _show(health, before, shape, asked)
        if asked.drain and (done := update_node(app.transport, app.hosts[0], health.findings, resume=asked.resume)):
            note(done)
        report_health(hook, app.fleet, health.findings)
        looks += 1
        if asked.watch is None or looks == asked.rounds:
            break
        time.sleep(asked.watch)
        before = health
    excused = [item for item in health.findings if item.status is Status.UNKNOWN and is_denied(item.actual)]
    counting = [item for item in health.findings if asked.unknown != "ok" or item not in excused]
    status = exit_status((finding.status for finding in counting), strict=asked.strict)
    raise SystemExit(1 if status == 3 and asked.unknown == "fail" else status)


def _refuse_pairs(app: App, *, one_line: bool, listed: bool) -> None:
    """Refuse options of which only one could be obeyed; what settings say yields to what was typed."""
    if one_line and listed:
        raise click.UsageError("--one-line and --list exclude each other: a list of checks has no worst status")
    if one_line and "output" in app.typed:
        raise click.UsageError(f"--one-line and --output {app.output} exclude each other: give one form of the result")
    if listed and "output" in app.typed and app.output not in ("table", "json"):
        raise click.UsageError(f"--list and --output {app.output} exclude each other: the list is a table or json")


def _show(health: Health, before: Health | None, form: str, asked: _Options) -> None:
    if before is not None and asked.write is None and form in ("table", "one-line"):
        changed, now = changes(before.findings, health.findings), counts(health.findings)
        clock = time.strftime("%H:%M:%S")
        result(f"{clock}\n{changed}\n{now}" if changed else f"{clock}  no change; {now}")
        return
    put(_rendered(health, form, everything=asked.everything, strict=asked.strict).rstrip("\n"), asked.write)
    for name in dict.fromkeys(health.recorded.values()):
        hosts = [host for host, recording in health.recorded.items() if recording == name]
        note(f"recorded: {fold(hosts)} from {name}")


def _rendered(health: Health, form: str, *, everything: bool, strict: bool) -> str:
    if form == "json":
        findings = [finding_document(finding) for finding in health.findings]
        recorded = ", ".join(dict.fromkeys(health.recorded.values())) or None
        document = {"hosts": health.hosts, "profiles": health.profiles, "findings": findings, "recorded": recorded}
        return as_json("health", document)
    if form == "prometheus":
        from nodectl.report.metrics import prometheus

        return prometheus(health.findings, health.profiles, time_s=time.time(), recorded=health.recorded)
    if form == "junit":
        return junit(health.findings, time_s=time.time(), strict=strict)
    if form == "one-line":
        return one_line(health.findings)
    return findings_table(health.findings, everything=everything)


def _list(app: App) -> None:
    try:
        site = app.site_checks
    except InventoryError:
        if app.inventory_sources:
            raise
        site = ()  # nobody has said whose checks are meant
    catalogue = [
        *(("health", check) for check in checks().values()),
        *(("health", listed_as(check)) for check in site),
        *(("launch", check) for check in launch_checks().values()),
    ]
    if app.json:
        listed = [
            {"check": check.id, "asked_by": command, "reads": reads().get(check.id, ()), "fires": check.fires}
            for command, check in catalogue
        ]
        numbers = {limit.name: {"value": limit.value, "why": limit.why} for limit in thresholds().values()}
        click.echo(as_json("health-checks", {"checks": listed, "thresholds": numbers}))
        return
    rows = [(check.id, command, " ".join(reads().get(check.id, ())), check.fires) for command, check in catalogue]
    limits = [(limit.name, f"{limit.value:g}", limit.why) for limit in thresholds().values()]
    result(aligned([("CHECK", "ASKED BY", "FACTS", "NOT OK WHEN"), *rows]))
    result("\n" + aligned([("THRESHOLD", "DEFAULT", "WHY"), *limits]))
