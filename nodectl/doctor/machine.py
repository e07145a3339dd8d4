"""What nodectl itself needs of this machine: Python and packages, its own files, programs, folders, the terminal."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from nodectl import __version__
from nodectl.common.counting import counted
from nodectl.common.encoding import UTF_8, encoding, is_utf_8
from nodectl.common.paths import folders
from nodectl.common.resources import share_dir
from nodectl.common.units import format_size_rounded
from nodectl.doctor.finding import here
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_PACKAGE = "nodectl"
# below it, writing what one command keeps may fail in the middle
_LEAST_FREE_BYTES = 256 << 20
_PARTS = ("playbooks", "plugins", "roles")
# program → who needs it here, and the packages that bring it to Debian's and to Red Hat's families
_PROGRAMS = {
    "ssh": ("playbooks, and hosts that ~/.ssh/config says something of", "openssh-client", "openssh-clients"),
    "ssh-keygen": ("keys of your own, and signed certificates", "openssh-client", "openssh-clients"),
}
_INSTALLERS = (("apt-get", 1), ("dnf", 2), ("yum", 2), ("zypper", 2))


def installation() -> Iterator[Finding]:
    """Python, the packages that nodectl is built on, its own roles, and which nodectl the shell would start."""
    yield from _python()
    yield from _roles()
    yield from _on_path()


def _python() -> Iterator[Finding]:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    version = ".".join(map(str, sys.version_info[:3]))
    try:
        about = metadata.metadata(_PACKAGE)
        required = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        actual = f"{version} at {sys.executable}, where nodectl is not installed: what it needs is not known"
        yield here("python", Status.UNKNOWN, actual, remedy=f"{_pip()} install nodectl")
        return
    wanted = about["Requires-Python"] or ""
    status = Status.OK if SpecifierSet(wanted).contains(version, prereleases=True) else Status.FAILED
    remedy = "install nodectl in an environment of a newer Python: python3.12 -m venv ~/nodectl"
    yield here("python", status, f"{version} at {sys.executable}", expected=wanted, remedy=remedy)
    # the others are extras
    needed = [one for one in map(Requirement, required) if one.marker is None or one.marker.evaluate({"extra": ""})]
    faults = [fault for one in needed for fault in _lacking(one.name, str(one.specifier))]
    if not faults:
        yield here("packages", Status.OK, f"{counted(len(needed), 'package')} as nodectl {__version__} asks for them")
    yield from faults


def _lacking(name: str, wanted: str) -> Iterator[Finding]:
    """The finding of a package that is not there, or in another version than nodectl was tested with."""
    from packaging.specifiers import SpecifierSet

    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = ""
    if not version or not SpecifierSet(wanted).contains(version, prereleases=True):
        remedy = f"{_pip()} install {shlex.quote(name + wanted)}"
        actual = version or "not installed"
        yield here("packages", Status.FAILED, actual, expected=wanted or "any version", remedy=remedy, subject=name)


def _pip() -> str:
    return f"{sys.executable} -m pip"


def _roles() -> Iterator[Finding]:
    """The collection beside the package, without which nothing is provisioned."""
    folder = share_dir()
    missing = [name for name in _PARTS if not (folder / name).is_dir()]
    if missing:
        actual = f"no {', '.join(missing)} in {folder}"
        remedy = f"{_pip()} install --force-reinstall --no-deps nodectl=={__version__}"
        yield here("roles", Status.FAILED, actual, expected="the collection nodectl.fleet", remedy=remedy)
        return
    roles = [path for path in (folder / "roles").iterdir() if (path / "tasks").is_dir()]
    yield here("roles", Status.OK, f"{counted(len(roles), 'role')} of nodectl.fleet in {folder}")


def _on_path() -> Iterator[Finding]:
    """Yield whether `nodectl`, as the shell finds it, is this one."""
    places = [Path(folder) / _PACKAGE for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    found = list(dict.fromkeys(path.resolve() for path in places if os.access(path, os.X_OK) and path.is_file()))
    own = (Path(sys.executable).parent / _PACKAGE).resolve()
    actual = f"{__version__} at {own if own.exists() else sys.executable}"
    if not found:
        remedy = f'export PATH="{own.parent}:$PATH"'
        yield here("nodectl", Status.WARNING, f"{actual}; none on PATH", expected="one, on PATH", remedy=remedy)
    elif found[0] != own:
        remedy = f"rm {found[0]}, or put {own.parent} first in PATH; then: hash -r"
        yield here("nodectl", Status.WARNING, f"{actual}; the shell finds {found[0]}", expected="one", remedy=remedy)
    elif len(found) > 1:
        others = ", ".join(map(str, found[1:]))
        yield here("nodectl", Status.OK, f"{actual}; further down in PATH: {others}")
    else:
        yield here("nodectl", Status.OK, actual)


def programs() -> Iterator[Finding]:
    """Yield what nodectl starts on this machine."""
    for name, (who, *packages) in _PROGRAMS.items():
        path = shutil.which(name)
        if path is not None:
            yield here("programs", Status.OK, path, subject=name)
        else:
            yield here(
                "programs",
                Status.FAILED if name == "ssh" else Status.WARNING,
                "not on PATH",
                expected=f"OpenSSH's client, for {who}",
                remedy=_install(*packages),
                subject=name,
            )


def _install(*packages: str) -> str:
    """The command of this machine's package manager; `packages` as in _PROGRAMS."""
    for installer, family in _INSTALLERS:
        if shutil.which(installer, path=f"{os.environ.get('PATH', '')}:{os.defpath}"):
            return f"sudo {installer} install {packages[family - 1]}"
    return f"install {packages[0]}"


def places() -> Iterator[Finding]:
    """The folders in which nodectl keeps what it knows, and what can be made again."""
    for name, folder, variable in zip(("state", "cache"), folders(), ("XDG_STATE_HOME", "XDG_CACHE_HOME"), strict=True):
        yield _folder(name, folder, variable)


def _folder(name: str, folder: Path, variable: str) -> Finding:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    refused = _refused(folder, there)
    if refused:
        owner = f"sudo chown -R {getpass.getuser()} {there}"
        remedy = f"{owner}; or another folder: export {variable}=DIR"
        return here("folders", Status.FAILED, f"{there}: {refused}", expected="writable", remedy=remedy, subject=name)
    free = shutil.disk_usage(there).free
    enough = free >= _LEAST_FREE_BYTES
    return here(
        "folders",
        Status.OK if enough else Status.WARNING,
        f"{folder}, {format_size_rounded(free)} free",
        expected=f"{format_size_rounded(_LEAST_FREE_BYTES)} free",
        remedy=f"df -h {there}; make room there, or another folder: export {variable}=DIR",
        subject=name,
    )


def _refused(folder: Path, there: Path) -> str:
    """Why nothing can be written in the folder, or it cannot be made below `there`; nothing stays there."""
    if not there.is_dir():
        return "is a file"
    try:
        if there == folder:
            with tempfile.TemporaryFile(dir=folder):
                return ""
        return "" if os.access(there, os.W_OK | os.X_OK) else "no folder can be made there"
    except OSError as error:
        return error.strerror or str(error)


def terminal() -> Iterator[Finding]:
    """Yield whether names and texts of hosts can be shown, and Ansible, which refuses all but UTF-8, would start."""
    named = next((f"{name}={os.environ[name]}" for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    status = Status.OK if is_utf_8() else Status.WARNING
    known = encoding()
    actual = f"{known} ({named or 'no LANG'})" if known else f"{named}: this machine has no such locale"
    expected = "UTF-8: nodectl's playbooks have it all the same, Ansible started by hand does not start"
    yield here("locale", status, actual, expected=expected, remedy=f"export LC_ALL={UTF_8}")
