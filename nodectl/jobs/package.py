"""What the operator hands to a job, as one archive for every host: plan, secret, variables, and the code."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import stat
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodectl.errors import JobError, UsageError
from nodectl.jobs.code import Code
from nodectl.jobs.plan import Plan

_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def pack(plan: Plan, code: Code | None) -> bytes:
    """tar.gz with private modes; the secret is new for every job, and no code comes along where the hosts have it."""
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3, format=tarfile.PAX_FORMAT) as archive:
            add_file(archive, "plan.json", json.dumps(plan.document()).encode())
            add_file(archive, "secret", secrets.token_bytes(_SECRET_BYTES))
            if code is not None:
                add_code(archive, code)
    except OSError as error:
        raise JobError(f"the code cannot be read: {error}") from error
    return buffer.getvalue()


def add_code(archive: tarfile.TarFile, code: Code) -> None:
    """The code's files below `code/`."""
    for source, place in code.files:
        executable = os.access(source, os.X_OK)
        add_file(archive, f"code/{place}", source.read_bytes(), 0o700 if executable else 0o600)


def add_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o600) -> None:
    """A file with these bytes."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def collect_variables(names: Sequence[str], env_file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What --env and --env-file hand over: values by name, the file's first, then the operator's own environment's."""
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
