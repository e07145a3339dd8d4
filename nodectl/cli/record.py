"""`nodectl record`: Save every host's raw outputs in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from nodectl.cli.app import App
from nodectl.cli.rights import tell_unseen
from nodectl.cli.terminal import note, writing
from nodectl.common.nodeset import fold
from nodectl.health.site import commands_on
from nodectl.recordings.save import save


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--mask", is_flag=True, help="Replace names of hosts and users, addresses, serial numbers, UUIDs and tokens."
)
@click.pass_obj
def record(app: App, folder: Path, mask: bool) -> None:
    """Save every host's raw outputs in DIR, for --replay, for support, or to dress a lab in.

    One round trip a host, nothing written there.  Ends with 3 if a host was not reached; the others are saved.
    With --replay a recording is copied, for instance to mask it.
    """
    site = app.site_checks
    source = app.source
    if app.replay is None:
        tell_unseen(app)
    with writing(folder, "DIR", "name a folder that can be made, and in which you may write"):
        saved = save(source, folder, app.profile_dirs, mask=mask, more=lambda host: commands_on(host, site))
    hosts = {host: {"folder": name} for host, name in saved.folders.items()}
    document = {"folder": str(folder), "hosts": hosts, "unreachable": saved.failed}
    app.show("record", document, f"{folder}: {fold(saved.folders)}" if saved.folders else "")
    if mask:
        note(f"Masking is a help, not a guarantee: look through {folder} before you send it.")
    for host, reason in saved.failed.items():
        note(f"{host}: {reason}")
    if saved.source:
        note(f"recorded: {saved.source}")
    if saved.failed:
        raise SystemExit(3)
