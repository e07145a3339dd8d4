"""Packs what a job needs from the operator into one archive: plan, secret and code; and collects variables."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import secrets
import stat
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodectl.common.private import is_program, secret_of
from nodectl.errors import JobError, UsageError
from nodectl.jobs.code import Code
from nodectl.jobs.plan import Plan

_SECRET_BYTES = 32
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def pack(plan: Plan, code: Code | None) -> bytes:
    """Return the tar.gz for each host, with private modes; the secret is new for every job."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3, format=tarfile.PAX_FORMAT) as archive:
        _add_file(archive, "plan.json", json.dumps(plan.document()).encode())
        _add_file(archive, "secret", secrets.token_bytes(_SECRET_BYTES))
        if code is not None:
            try:
                _add_code(archive, code)
            except OSError as error:
                raise JobError(f"the code cannot be read: {error}") from error
    return buffer.getvalue()


def _add_code(archive: tarfile.TarFile, code: Code) -> None:
    for path, place in code.files:
        data, executable = _read_file(code.folder, path)
        # a file may have been replaced since it was selected
        if not is_program(path) and (what := secret_of(data)):
            raise JobError(f"{path} never travels with a job: by now it holds {what}", "remove it, and launch again")
        _add_file(archive, f"code/{place}", data, 0o700 if executable else 0o600)


def _read_file(folder: Path, path: Path) -> tuple[bytes, bool]:
    """Return what a file below `folder` holds and whether it is executable; OSError if a link is on the way by now."""
    *folders, name = path.relative_to(folder).parts
    opened = [os.open(folder, _FOLDER)]
    try:
        for part in folders:
            opened.append(os.open(part, _FOLDER, dir_fd=opened[-1]))
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened[-1])
    except OSError as error:
        raise OSError(error.errno, "it is not what it was when the launch began", str(path)) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
    with os.fdopen(file, "rb") as stream:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no file any more", str(path))
        return stream.read(), bool(mode & 0o111)


def _add_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o600) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def collect_variables(names: Sequence[str], env_file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Collect what --env and --env-file hand over, by name: the file's first, then the operator's own environment's."""
    values = _read_env_file(env_file) if env_file is not None else {}
    for name in names:
        values[name] = _own_value(name, environ)
    return values


def _own_value(name: str, environ: Mapping[str, str]) -> str:
    if "=" in name:
        raise UsageError(
            f"--env takes a name, not a value: everybody on this machine can read the value of {name.partition('=')[0]}"
            " in the list of processes",
            "export it and pass --env NAME, or put it into a file of mode 0600 and pass --env-file FILE",
        )
    _check_name(name, "--env")
    if name not in environ:
        raise UsageError(f"--env {name}: your environment has no {name}", f"export {name} first")
    return environ[name]


def _read_env_file(path: Path) -> dict[str, str]:
    """`NAME=VALUE` a line, the value taken as it stands; blank lines and lines that begin with # are left out."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--env-file {path}: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"--env-file {path}: others may read it (mode {stat.S_IMODE(mode):04o})", f"chmod 600 {path}")
    values = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise UsageError(f"--env-file {path}, line {number}: no '='", "write NAME=VALUE, one a line")
        _check_name(name, f"--env-file {path}, line {number}")
        values[name] = value
    return values


def _check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: {name!r} is not a name of a variable", "letters, digits and _ only")
    if name.startswith("NODECTL_"):
        raise UsageError(f"{where}: {name} is nodectl's own", "choose another name")
