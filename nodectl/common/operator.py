"""The operator's name, in the one form in which records on nodes and trials have it."""

import getpass
import os
import socket


def operator() -> str:
    """`login@machine`; below sudo the login that called it, and a number where a user id has no name."""
    try:
        login = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        login = str(os.getuid())
    return f"{login}@{socket.gethostname()}"
