"""The loop of `nodectl jobs watch`: look, print, wait; in a terminal in one place, else one block after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import result, terminal_width
from nodectl.jobs.pulse import Watch, stalls
from nodectl.model.host import Host
from nodectl.model.pulse import Pulse
from nodectl.report.watch import watch_document, watch_text

_WAITS_S = 20.0
_HOME = "\x1b[H\x1b[J"


def watch_job(
    app: App, hosts: Sequence[Host], job_id: str, pattern: str, *, interval_s: float, quiet_s: float, once: bool
) -> int | None:
    """Return None once the job has ended on all hosts; with `once` 1 if it stands still, else 0; 130 after Ctrl-C."""
    watch = Watch(app.transport, hosts, job_id, app.forks, pattern)
    try:
        pulses = watch.look()
        while True:
            said = stalls(pulses, quiet_s=quiet_s, waits_s=_WAITS_S)
            if not once:
                _print(app, job_id, pulses, said)
            if not any(pulse.alive or pulse.problem for pulse in pulses):
                return None
            time.sleep(interval_s)
            pulses = watch.look()
            if once:
                said = stalls(pulses, quiet_s=quiet_s, waits_s=interval_s)
                _print(app, job_id, pulses, said)
                return 1 if said else 0
    except KeyboardInterrupt:
        return 130


def _print(app: App, job_id: str, pulses: Sequence[Pulse], said: Sequence[str]) -> None:
    live = sys.stdout.isatty() and not app.json
    if live:
        click.echo(_HOME, nl=False)
    width = terminal_width() if live else None
    app.show("watch", watch_document(job_id, pulses, said), watch_text(job_id, pulses, said, width))
    if not live and not app.json:
        result("")
