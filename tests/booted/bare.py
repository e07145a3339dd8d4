"""A container of the smallest Debian, with this machine's network and settings of pip: what a newcomer types runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.booted.fleet import mount_root
from tests.booted.image import bare_image
from tests.booted.needs import search_path
from tests.booted.sessions import session
from tests.booted.system import Said

ROOT = Path(__file__).resolve().parents[2]
LOGIN = "someone"
_HOME = f"/home/{LOGIN}"
_CHECKOUT = f"{_HOME}/nodectl"
_RUN_S = 900


class Bare:
    """Its login has a checkout, and is no root; nothing boots, no sshd runs."""

    def __init__(self, root: Path) -> None:
        """`root` is a mounted root that may be written."""
        settings = package_settings()
        self._root = root
        self._shown = {Path("/etc/resolv.conf"), *_paths(settings)}
        self._chroot("useradd", "--create-home", "--shell", "/bin/bash", LOGIN)
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(settings.items()))
        (root / "etc/profile.d/packages.sh").write_text(exports)
        _copy_checkout(root / _CHECKOUT.lstrip("/"))
        self._chroot("chown", "--recursive", f"{LOGIN}:", _CHECKOUT)

    def run(self, command: str) -> Said:
        """A shell command in the checkout, after a new login."""
        argv = ["systemd-nspawn", "--quiet", f"--directory={self._root}", "--register=no", "--keep-unit"]
        argv += ["--console=pipe", "--resolv-conf=off", "--timezone=off", "--link-journal=no"]
        argv += [f"--bind-ro={path}" for path in sorted(self._shown)]
        argv += ["su", "--login", LOGIN, "--command", f"cd {_CHECKOUT} && {command}"]
        env = {**os.environ, "PATH": search_path()}
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_RUN_S, env=env, check=False
        )
        return Said(done.returncode, done.stdout.strip(), done.stderr.strip())

    def _chroot(self, *argv: str) -> None:
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        subprocess.run(["chroot", str(self._root), *argv], env=path, capture_output=True, check=True)


@contextmanager
def bare(place: Path, release: str) -> Iterator[Bare]:
    """One of that release, gone at the end."""
    image = bare_image(release)
    with session(place, "bare") as journal:
        yield Bare(mount_root(journal, image, journal.home / release))


def package_settings() -> dict[str, str]:
    """What this machine's pip is told of where packages come from, as variables of pip's and of uv's."""
    listed = _printed(sys.executable, "-m", "pip", "config", "list")
    found: dict[str, str] = {}
    for key, value in re.findall(r"^[^=]*\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        # the environment stands first in the list, and wins
        found.setdefault(f"PIP_{key.upper().replace('-', '_')}", value.replace("\\n", " ").strip())
    script = '. scripts/pip_settings.sh && pip_settings "$0" && env'
    for_uv = _printed("bash", "-c", script, sys.executable)
    return found | dict(re.findall(r"^(UV_(?!CACHE)\w+|SSL_CERT_FILE)=(.*)$", for_uv, re.MULTILINE))


def _paths(settings: Mapping[str, str]) -> Iterator[Path]:
    """Files and folders of this machine that the settings name; what an index links to lies beside it."""
    for word in (word for value in settings.values() for word in re.split(r"[\s,]+", value)):
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.exists():
            yield path.parent if word.startswith("file://") else path


def _copy_checkout(target: Path) -> None:
    """Files that git tracks, as they are now; an environment or a cache of this machine's would be no newcomer's."""
    target.mkdir(parents=True)
    tracked = _printed("git", "ls-files", "-z")
    there = "\0".join(name for name in tracked.split("\0") if os.path.lexists(ROOT / name))
    packed = subprocess.run(
        ["tar", "--null", "--files-from=-", "--create"], cwd=ROOT, input=there.encode(), capture_output=True, check=True
    )
    subprocess.run(["tar", "--extract", "--no-same-owner"], cwd=target, input=packed.stdout, check=True)


def _printed(*argv: str) -> str:
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
