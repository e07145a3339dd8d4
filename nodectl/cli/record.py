"""`nodectl record`: Save every host's raw outputs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.recordings.save import Saved


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--mask", is_flag=True, help="Replace serial numbers, UUIDs, addresses and names, everywhere alike.")
@click.pass_obj
def record(app: App, folder: Path, mask: bool) -> None:
    """Save every host's raw outputs in DIR, for --replay, for support, or to dress a lab in.

    One round trip a host, nothing written there.  Ends with 3 where a host was not reached; the others are saved.
    With --replay a recording is copied, for instance to mask it.
    """
    from nodectl.recordings.save import save

    saved = save(app.source, folder, app.profile_dirs, mask=mask)
    _show(app, folder, saved)
    if saved.failed:
        raise SystemExit(3)


def _show(app: App, folder: Path, saved: Saved) -> None:
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.common.nodeset import fold

    if app.json:
        hosts = {host: {"folder": name} for host, name in saved.folders.items()}
        emit_json("record", {"folder": str(folder), "hosts": hosts, "unreachable": saved.failed})
    elif saved.folders:
        result(f"{folder}: {fold(saved.folders)}")
    for host, reason in saved.failed.items():
        note(f"{host}: {reason}")
    if saved.source:
        note(f"recorded: {saved.source}")
