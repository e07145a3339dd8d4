"""A systemd scope of its own for a job of a login other than root: no end of a session takes it along.

The user's own manager holds it, in groups that belong to the login: the job then gets a control group, which a login
session's own does not allow. Only a manager that outlives the sessions will do (`loginctl enable-linger`).
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import List

_LINGER = "/var/lib/systemd/linger"
_MARK = "NODECTL_IN_SCOPE"
_TRY_S = 5.0


def enter(name: str) -> None:
    """Begin this program anew in `nodectl-NAME.scope`; returns where that is not possible, or done already."""
    program = os.path.abspath(sys.argv[0])
    if os.environ.pop(_MARK, None) or os.geteuid() == 0 or not lingers() or not os.path.isfile(program):
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")  # a command over SSH may lack it
    if _works():
        flags = ["-S"] if sys.flags.no_site else []
        words = [*_run(f"--unit=nodectl-{name}.scope"), sys.executable, *flags, program, *sys.argv[1:]]
        os.execvpe(words[0], words, {**os.environ, _MARK: "1"})  # noqa: S606 - an argv, and no shell is the point


def _run(*more: str) -> List[str]:
    return ["systemd-run", "--user", "--scope", "--quiet", "--collect", *more, "--"]


def _works() -> bool:
    """The manager makes scopes: asked before this program is given up for it."""
    nowhere = subprocess.DEVNULL
    try:
        return not subprocess.call([*_run(), "true"], stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=_TRY_S)
    except (OSError, subprocess.TimeoutExpired):
        return False


def lingers() -> bool:
    """The login's own manager outlives its sessions."""
    try:
        return os.path.exists(os.path.join(_LINGER, pwd.getpwuid(os.geteuid()).pw_name))
    except KeyError:
        return False
