"""`nodectl health`: whether every host is what its profiles say, for terminals, programs, Prometheus and prologs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.health import Health

_FORMATS = ("table", "json", "prometheus")


@click.command()
@click.option("--hardware", metavar="NAME", help="Instead of the hosts' nodectl_hardware.")
@click.option("--stack", metavar="NAME", help="Instead of the hosts' nodectl_stack.")
@click.option("--tuning", metavar="NAME", help="Instead of the hosts' nodectl_tuning.")
@click.option("--output", "form", type=click.Choice(_FORMATS), help="Default: table.")
@click.option("--one-line", is_flag=True, help="The worst status and its findings on one line, as a prolog wants.")
@click.option("--strict", is_flag=True, help="Warnings end with 1 too.")
@click.option("--unknown", type=click.Choice(["ok", "fail"]), help="What 3 (could not be told) becomes: 0 or 1.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Into this file, in one step.")
@click.pass_obj
def health(
    app: App,
    hardware: str | None,
    stack: str | None,
    tuning: str | None,
    form: str | None,
    one_line: bool,
    strict: bool,
    unknown: str | None,
    write: Path | None,
) -> None:
    """Hold every host against its profiles: one round trip a host, nothing changed there.

    Ends with 1 if any check failed, else 3 if anything could not be told or reached, else 0.
    """
    from nodectl.health import look
    from nodectl.model.status import exit_status
    from nodectl.profiles.load import profile_dirs

    given = {"hardware": hardware, "stack": stack, "tuning": tuning}
    found = look(
        app.hosts,
        app.transport,
        names={kind: name for kind, name in given.items() if name},
        extra_dirs=profile_dirs(app.inventory.sources),
        forks=app.forks,
    )
    _show(found, "one-line" if one_line else form or app.output, write)
    status = exit_status((each.status for each in found.findings), strict=strict)
    if status == 3 and unknown:
        status = {"ok": 0, "fail": 1}[unknown]
    raise SystemExit(status)


def _show(found: Health, form: str, write: Path | None) -> None:
    from nodectl.cli.terminal import result, safe

    text = _rendered(found, form)
    if write is None:
        result(text.rstrip("\n"))
    else:
        _put(write, safe(text).rstrip("\n") + "\n")


def _rendered(found: Health, form: str) -> str:
    from nodectl.nodeset import fold
    from nodectl.report.findings import finding_document, findings_table, one_line
    from nodectl.report.prometheus import prometheus

    if form == "json":
        from nodectl.cli.terminal import as_json

        documents = [finding_document(each) for each in found.findings]
        return as_json("health", {"hosts": found.hosts, "profiles": found.profiles, "findings": documents})
    if form == "prometheus":
        return prometheus(found.findings, found.profiles, time_s=time.time())
    if form == "one-line":
        return one_line(found.findings)
    return findings_table(found.findings, fold)


def _put(path: Path, text: str) -> None:
    """A reader sees the old file or the new one; everybody may read it, as node_exporter must."""
    import os
    import tempfile

    handle, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(staged).chmod(0o644)
        Path(staged).replace(path)
    except BaseException:
        Path(staged).unlink(missing_ok=True)
        raise
