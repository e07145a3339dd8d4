"""`nodectl health`: Hold every host against its profiles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.option_types import Seconds
from nodectl.cli.profile_option import profile_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.health.fleet import Health

_FORMATS = ("table", "json", "junit", "prometheus")
_WATCH_S = 60.0


@click.command()
@profile_option("hardware", help="Instead of the hosts' nodectl_hardware.")
@profile_option("stack", help="Instead of the hosts' nodectl_stack.")
@profile_option("tuning", help="Instead of the hosts' nodectl_tuning.")
@click.option("--output", "form", type=click.Choice(_FORMATS), help="Default: table.")
@click.option("--one-line", is_flag=True, help="The worst status and its findings on one line, as a prolog wants.")
@click.option("--all", "everything", is_flag=True, help="In the table what is ok or skipped, too.")
@click.option("--strict", is_flag=True, help="Warnings end with 1 too.")
@click.option("--unknown", type=click.Choice(["ok", "fail"]), help="What 3 (could not be told) becomes: 0 or 1.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Into this file, in one step.")
@click.option(
    "--watch",
    is_flag=False,
    flag_value=_WATCH_S,
    type=Seconds(min=1),
    metavar="[SECONDS]",
    help=f"Again and again, each {_WATCH_S:g} s or SECONDS, telling what changed.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="With --watch: so many looks, not without end.")
@click.option("--list", "listed", is_flag=True, help="The checks and their thresholds; no host is asked.")
@click.pass_obj
def health(
    app: App,
    hardware: str | None,
    stack: str | None,
    tuning: str | None,
    form: str | None,
    one_line: bool,
    everything: bool,
    strict: bool,
    unknown: str | None,
    write: Path | None,
    watch: float | None,
    rounds: int | None,
    listed: bool,
) -> None:
    """Hold every host against its profiles, its last reading and the other hosts: one round trip a host.

    Nothing is changed there.  Ends with 1 if any check failed, else 3 if anything could not be told or reached, else 0.
    """
    if listed:
        _list(app.json or form == "json")
        return
    if rounds and watch is None:
        raise click.UsageError("--rounds goes with --watch")
    from nodectl.model.status import exit_status
    from nodectl.profiles.host import check_names

    given = {"hardware": hardware, "stack": stack, "tuning": tuning}
    names = {kind: name for kind, name in given.items() if name}
    shape = "one-line" if one_line else form or app.output
    check_names(names, app.profile_dirs)
    found = _look(app, names)
    _show(found, shape, write, everything=everything, strict=strict)
    left = None if rounds is None else rounds - 1
    while watch is not None and left != 0:
        time.sleep(watch)
        before, found = found, _look(app, names)
        _again(before, found, shape, write, strict=strict)
        left = None if left is None else left - 1
    status = exit_status((each.status for each in found.findings), strict=strict)
    if status == 3 and unknown:
        status = {"ok": 0, "fail": 1}[unknown]
    raise SystemExit(status)


def _look(app: App, names: Mapping[str, str]) -> Health:
    from nodectl.cli.terminal import note
    from nodectl.common.paths import state_dir
    from nodectl.health.fleet import look
    from nodectl.health.history import StateFile

    source = app.source
    # a recording is a fleet of its own: what it counts is not held against live hosts
    fleet = f"recorded {source.recorded}" if source.recorded else "\n".join(app.inventory.sources)
    found = look(source, names=names, extra_dirs=app.profile_dirs, state=StateFile(state_dir() / "health", fleet))
    for text in found.notes:
        note(f"warning: {text}")
    return found


def _show(found: Health, form: str, write: Path | None, *, everything: bool, strict: bool) -> None:
    from nodectl.cli.terminal import note, result, safe
    from nodectl.common.nodeset import fold

    text = _rendered(found, form, everything=everything, strict=strict)
    if write is None:
        result(text.rstrip("\n"))
    else:
        _put(write, safe(text).rstrip("\n") + "\n")
    for name in dict.fromkeys(found.recorded.values()):
        note(f"recorded: {fold([host for host, each in found.recorded.items() if each == name])} from {name}")


def _again(before: Health, found: Health, form: str, write: Path | None, *, strict: bool) -> None:
    """A terminal is told what changed, a program and a file all of it."""
    from nodectl.cli.terminal import result
    from nodectl.report.findings import changes, counts

    if write is not None or form not in ("table", "one-line"):
        _show(found, form, write, everything=False, strict=strict)
        return
    told = changes(before.findings, found.findings)
    clock = time.strftime("%H:%M:%S")
    result(f"{clock}\n{told}\n{counts(found.findings)}" if told else f"{clock}  no change; {counts(found.findings)}")


def _rendered(found: Health, form: str, *, everything: bool, strict: bool) -> str:
    from nodectl.report.findings import finding_document, findings_table, one_line
    from nodectl.report.junit import junit
    from nodectl.report.prometheus import prometheus

    if form == "json":
        from nodectl.cli.terminal import as_json

        documents = [finding_document(each) for each in found.findings]
        recorded = ", ".join(dict.fromkeys(found.recorded.values())) or None
        document = {"hosts": found.hosts, "profiles": found.profiles, "findings": documents, "recorded": recorded}
        return as_json("health", document)
    if form == "prometheus":
        return prometheus(found.findings, found.profiles, time_s=time.time(), recorded=found.recorded)
    if form == "junit":
        return junit(found.findings, time_s=time.time(), strict=strict)
    if form == "one-line":
        return one_line(found.findings)
    return findings_table(found.findings, everything=everything)


def _list(as_document: bool) -> None:
    from nodectl.checks.catalogue import checks, launch_checks, thresholds
    from nodectl.cli.terminal import emit_json, result
    from nodectl.report.table import aligned

    known = [
        *(("health", check) for check in checks().values()),
        *(("launch", check) for check in launch_checks().values()),
    ]
    if as_document:
        listed = [
            {"check": check.id, "asked_by": command, "looks_at": check.looks_at, "fires": check.fires}
            for command, check in known
        ]
        numbers = {limit.name: {"value": limit.value, "why": limit.why} for limit in thresholds().values()}
        emit_json("health-checks", {"checks": listed, "thresholds": numbers})
        return
    rows = [(check.id, command, check.looks_at, check.fires) for command, check in known]
    result(aligned([("CHECK", "ASKED BY", "LOOKS AT", "NOT OK WHEN"), *rows]))
    limits = [(limit.name, f"{limit.value:g}", limit.why) for limit in thresholds().values()]
    result("\n" + aligned([("THRESHOLD", "DEFAULT", "WHY"), *limits]))


def _put(path: Path, text: str) -> None:
    """A reader sees the old file or the new one; everybody may read it, as node_exporter must."""
    from nodectl.common.files import replace_file
    from nodectl.errors import UsageError

    try:
        replace_file(path, text, mode=0o644)
    except OSError as error:
        raise UsageError(
            f"--write {path}: {error.strerror or error}", "name a file in a folder that is there"
        ) from error
