"""Packs what a job needs from the operator into one archive a host: plan, secret, variables, and the code."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import secrets
import stat
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.private import is_program, secret_of
from nodectl.common.units import MIB
from nodectl.errors import JobError, UsageError
from nodectl.jobs.code import Code
from nodectl.jobs.plan import Plan

_SECRET_BYTES = 32
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Parcel:
    """Hold what `hosts` lack of the code: contents by their SHA-256."""

    hosts: tuple[str, ...]
    contents: Mapping[str, bytes]

    def describe(self) -> str:
        """Return `2 files, 0.1 MiB`."""
        return f"{counted(len(self.contents), 'file')}, {sum(map(len, self.contents.values())) / MIB:.1f} MiB"


def pack(
    plan: Plan, code: Code | None, kept: Mapping[str, Collection[str]]
) -> tuple[dict[str, bytes], tuple[Parcel, ...]]:
    """Each host's tar.gz with private modes, with what it lacks of the code (`kept`: beginnings of SHA-256, by host).

    The secret is new for every job. Hosts that lack the same have one parcel; there is none where code is not copied.
    """
    secret = secrets.token_bytes(_SECRET_BYTES)
    if code is None:
        return dict.fromkeys(kept, _archive(plan, secret, {})), ()
    manifest, contents = _read(code)
    archives, sent = {}, _parcels(contents, kept)
    for parcel in sent:
        # one member for all contents: a node takes four times as long for a member each
        sizes = [(digest, len(data)) for digest, data in parcel.contents.items()]
        files = json.dumps({"project": code.project, "files": manifest, "blobs": sizes}).encode()
        members = {"files.json": files, "blobs": b"".join(parcel.contents.values())}
        archives.update(dict.fromkeys(parcel.hosts, _archive(plan, secret, members)))
    return archives, sent


def _read(code: Code) -> tuple[dict[str, tuple[str, bool]], dict[str, bytes]]:
    """Return each file's SHA-256 and whether it is executable, by its path, and the contents by SHA-256."""
    manifest, contents = {}, {}
    try:
        for path, place in code.files:
            data, executable = _read_file(code.folder, path)
            # a file may have been replaced since it was selected
            if not is_program(path) and (what := secret_of(data)):
                raise JobError(
                    f"{path} never travels with a job: by now it holds {what}", "remove it, and launch again"
                )
            digest = hashlib.sha256(data).hexdigest()
            contents[digest] = data
            manifest[place] = digest, executable
    except OSError as error:
        raise JobError(f"the code cannot be read: {error}") from error
    return manifest, contents


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


def _parcels(contents: Mapping[str, bytes], kept: Mapping[str, Collection[str]]) -> tuple[Parcel, ...]:
    hosts: dict[frozenset[str], list[str]] = {}
    for host, there in kept.items():
        hosts.setdefault(frozenset(_lacking(contents, frozenset(there))), []).append(host)
    return tuple(
        Parcel(tuple(names), {digest: contents[digest] for digest in contents if digest in lacking})
        for lacking, names in hosts.items()
    )


def _lacking(digests: Iterable[str], there: frozenset[str]) -> Iterator[str]:
    """Yield the digests of which the host has no beginning."""
    lengths = {len(beginning) for beginning in there}
    return (digest for digest in digests if not any(digest[:length] in there for length in lengths))


def _archive(plan: Plan, secret: bytes, files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3, format=tarfile.PAX_FORMAT) as archive:
        _add_file(archive, "plan.json", json.dumps(plan.document()).encode())
        _add_file(archive, "secret", secret)
        for name, data in files.items():
            _add_file(archive, name, data)
    return buffer.getvalue()


def describe_parcels(sent: Sequence[Parcel]) -> str:
    """Return `code: 2 files, 0.1 MiB are new to the hosts`, by groups of hosts where they differ; "" without code."""
    if len(sent) < 2:
        return f"code: {sent[0].describe()} of it are new to the hosts" if sent else ""
    return f"code: {'; '.join(f'{parcel.describe()} of it are new to {fold(parcel.hosts)}' for parcel in sent)}"


def _add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file with these bytes."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
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
