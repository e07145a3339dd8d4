"""ssh_config as OpenSSH resolves it: by `ssh -G`, and only where a file says something that concerns nodectl."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from nodectl.errors import UnreachableError

_GLOBAL = Path("/etc/ssh/ssh_config")
# directives that change nothing in how nodectl reaches a host; all others are a reason to ask `ssh -G`
_HARMLESS = {
    "addkeystoagent", "batchmode", "compression", "controlmaster", "controlpath", "controlpersist", "forwardagent",
    "forwardx11", "forwardx11timeout", "forwardx11trusted", "gssapiauthentication", "gssapidelegatecredentials",
    "hashknownhosts", "host", "loglevel", "match", "permitlocalcommand", "sendenv", "serveralivecountmax",
    "serveraliveinterval", "stricthostkeychecking", "tcpkeepalive", "updatehostkeys", "visualhostkey",
}  # fmt: skip
_ASK_S = 10.0


def home() -> Path:
    """The operator's home as programs see it (HOME)."""
    return Path.home()


def asked_for(config_file: str | None) -> bool:
    """Whether any ssh_config that counts says something about how a host is reached."""
    return any(_speaks(path) for path in _files(config_file))


def resolve(address: str, arguments: Sequence[str], config_file: str | None) -> dict[str, list[str]]:
    """What `ssh -G` prints for `address`: keyword → values; UnreachableError where ssh refuses its files."""
    explicit = ["-F", config_file] if config_file else _home_config()
    argv = ["ssh", "-G", *explicit, *arguments, "--", address]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(
            f"ssh -G {address}: {error}", "install the OpenSSH client, or empty ssh_config"
        ) from error
    if done.returncode != 0:
        raise UnreachableError(f"ssh -G {address}: {done.stderr.strip()}", "correct ssh_config")
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword.lower(), []).append(value)
    return found


def _files(config_file: str | None) -> tuple[Path, ...]:
    if config_file and config_file.lower() == "none":
        return ()
    if config_file:
        return (Path(config_file).expanduser(),)
    return (home() / ".ssh" / "config", _GLOBAL)


def _home_config() -> list[str]:
    """ssh looks in the home that the password file names; where HOME says otherwise, HOME is meant."""
    mine = home() / ".ssh" / "config"
    differs = Path(pwd.getpwuid(os.getuid()).pw_dir) != home()
    return ["-F", str(mine)] if differs and mine.exists() else []


@lru_cache(maxsize=64)
def _speaks(path: Path, depth: int = 0) -> bool:
    for keyword, value in _directives(path):
        if keyword == "include":
            if depth > 8 or any(_speaks(included, depth + 1) for included in _included(path, value)):
                return True
        elif keyword not in _HARMLESS:
            return True
    return False


def _directives(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            keyword, _, value = stripped.replace("=", " ", 1).partition(" ")
            yield keyword.lower(), value.strip()


def _included(path: Path, value: str) -> Iterator[Path]:
    base = _GLOBAL.parent if path.is_relative_to(_GLOBAL.parent) else home() / ".ssh"
    for word in shlex.split(value):
        pattern = Path(word).expanduser()
        pattern = pattern if pattern.is_absolute() else base / pattern
        yield from Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
