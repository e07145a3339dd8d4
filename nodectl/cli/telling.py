"""Commands that tell somebody what they found, where nodectl.toml names receivers (`[[notify]]`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.paths import state_dir
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding

if TYPE_CHECKING:
    from nodectl.model.acceptance import Acceptance
    from nodectl.notify.tell import Desk

_WAIT_S = 5.0


def files_for_job(app: App) -> dict[str, bytes]:
    """Return what a job's folder holds of its receivers, with their secrets: nothing where nobody is to be told."""
    receivers = [one for one in app.receivers() if any(event.startswith("job-") for event in one.on)]
    if not receivers:
        return {}
    from nodectl.notify.settings import documents
    from nodectl.notify.tell import fleet_name

    note(f"the hosts tell of the job: {', '.join(one.name for one in receivers)}")
    told = {"fleet": fleet_name(app.fleet), "receivers": documents(receivers, travel=True)}
    return {"notify/receivers.json": json.dumps(told).encode()}


def secret_files(app: App) -> list[Path]:
    """Return the files that hold the receivers' secrets, which are no part of a job's code."""
    return [
        Path(path) for one in app.receivers() for path in (one.url_file, one.token_file) if path and not one.on_node
    ]


def desk_of(app: App) -> Desk:
    """Return the fleet's messages on this machine."""
    from nodectl.notify.tell import Desk

    return Desk(state_dir(), app.fleet, app.receivers())


def tell_health(app: App, findings: Sequence[Finding]) -> None:
    """Tell of hosts that turned failed or came back, and of an acceptance near its end; send what waits."""

    def tell(desk: Desk) -> None:
        from nodectl.ledger.accept import store

        desk.tell_health(findings)
        if (last := store.latest(app.fleet)) is not None:
            desk.tell_certificate(last, time.time())

    _tell(app, tell)


def tell_acceptance(app: App, acceptance: Acceptance) -> None:
    """Tell an acceptance's verdicts."""
    _tell(app, lambda desk: desk.tell_acceptance(acceptance))


def _tell(app: App, work: Callable[[Desk], None]) -> None:
    """Tell; a command's own result does not depend on that, and so a failure is a note."""
    if "notify" not in app.settings or app.replay is not None:
        return
    try:
        desk = desk_of(app)
        work(desk)
        desk.send(_WAIT_S)
        if lost := [row for row in desk.queue.pending() if not row["waits"]]:
            note(f"notify: {len(lost)} of the last messages were not delivered: nodectl notify pending")
    except (NodectlError, OSError) as error:
        note(f"notify: nobody could be told: {error}")
