"""What this login may not do on the machine that it types on, said before anything starts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.process import login
from nodectl.errors import UsageError
from nodectl.facts.base import variable
from nodectl.model.host import Host

_SUDO_S = 10


def require_root(app: App) -> None:
    """Raise UsageError where playbooks cannot become root on this machine; what others allow, they say themselves."""
    from nodectl.doctor.hosts import BECOME_PASSWORDS

    host = _here(app)
    if host is None or app.access.ask_become_pass or any(host.variables.get(name) for name in BECOME_PASSWORDS):
        return
    if host.variables.get("ansible_become") is False or variable(host, "ansible_become_method", "sudo") != "sudo":
        return
    sudo = shutil.which("sudo")
    if sudo and _answers([sudo, "-n", "true"]):
        return
    words = [shutil.which("nodectl") or "nodectl", *sys.argv[1:]]
    as_root = f"su -c {shlex.quote(shlex.join(words))}"
    why, remedy = ("there is no sudo", as_root)
    if sudo:
        why, remedy = "sudo wants a password", f"{shlex.join([words[0], '-K', *words[1:]])}; or {as_root}"
    raise UsageError(f"this needs root on {host.name}, which {login()} is not, and {why}: nothing was changed", remedy)


def tell_unseen(app: App) -> None:
    """Note, once, that this login does not see on this machine what only root sees."""
    if (host := _here(app)) is None:
        return
    from nodectl.doctor.hosts import LOOKS

    if not _answers(["sh", "-c", f"{LOOKS}exit 7"], 7):
        note(
            f"{host.name}: {login()} is not root: what only root sees there is left out or unknown; "
            "as root nothing is, and `nodectl sudoers` prints what lets this login look"
        )


def _here(app: App) -> Host | None:
    """Return the host that is this machine, where this login is not root on it."""
    return None if os.geteuid() == 0 else next((host for host in app.hosts if host.connection == "local"), None)


def _answers(argv: list[str], status: int = 0) -> bool:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SUDO_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == status
