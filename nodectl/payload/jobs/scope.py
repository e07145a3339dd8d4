"""Starts a job in a systemd scope of its login's manager, which outlives the login's sessions."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

_LINGER = "/var/lib/systemd/linger"
_MARK = "NODECTL_IN_SCOPE"
_TRY_S = 5.0


def enter_scope(name: str) -> None:
    """Execute this program again inside `nodectl-NAME.scope`; return if that is impossible or already done."""
    program = os.path.abspath(sys.argv[0])
    if os.environ.pop(_MARK, None) or os.geteuid() == 0 or not lingers() or not os.path.isfile(program):
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")  # a command over SSH may lack it
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
    nowhere = subprocess.DEVNULL
    try:  # asked before this program is given up for it
        if subprocess.call([*scope, "--", "true"], stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=_TRY_S):
            return
    except (OSError, subprocess.TimeoutExpired):
        return
    flags = ["-S"] if sys.flags.no_site else []
    argv = [*scope, f"--unit=nodectl-{name}.scope", "--", sys.executable, *flags, program, *sys.argv[1:]]
    os.execvpe(argv[0], argv, {**os.environ, _MARK: "1"})  # noqa: S606 - an argv, and no shell is the point


def lingers() -> bool:
    """Tell whether the login's own manager outlives its sessions."""
    try:
        return os.path.exists(os.path.join(_LINGER, pwd.getpwuid(os.geteuid()).pw_name))
    except KeyError:
        return False
