"""Why a supervisor was asked to end: by a stop of the job's operator, with its node, or by somebody else."""

from __future__ import annotations

import subprocess
from typing import NamedTuple, Optional

from .folder import JobFolder

_ASK_S = 1.0
_SHUTS_DOWN = "systemd-shutdow"  # process 1 at the very end, as far as its name goes


class Leaving(NamedTuple):
    """This host's part ends, and the job may go on without it; `kind` and `message` are those of its failure."""

    kind: str
    message: str


def why_asked(job: JobFolder) -> Optional[Leaving]:
    """Return None for a stop; where no request could have been left, on a full disk, it is taken for one, too."""
    if job.stop_requested or not job.takes_files():
        return None
    if node_ends():
        return Leaving("rebooted", "the node was shut down while the job ran there")
    return Leaving("supervisor", "the job's supervisor there was asked to end by a signal, not by `nodectl jobs stop`")


def node_ends() -> bool:
    """The node is being shut down or restarted in good order."""
    return _name_of_init().startswith(_SHUTS_DOWN) or _systemd_says() == "stopping"


def _name_of_init() -> str:
    try:
        with open("/proc/1/comm", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _systemd_says() -> str:
    argv, nowhere = ["systemctl", "is-system-running"], subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()
