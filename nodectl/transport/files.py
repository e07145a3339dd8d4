"""Files and folders onto a host: over standard input, into a temporary neighbour, then renamed."""

from __future__ import annotations

import fnmatch
import io
import os
import tarfile
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport.base import Transport

_HOME = 'case $1 in "~/"*) p=$HOME/${1#"~/"};; *) p=$1;; esac; '
_PUSH_BYTES = (
    "umask 077; " + _HOME + 'mkdir -p -- "$(dirname -- "$p")" && t=$(mktemp "$p.XXXXXX") || exit; '
    'trap \'rm -f -- "$t"\' EXIT; chmod "$2" "$t" && cat >"$t" && mv -fT -- "$t" "$p"'
)
# what was there is replaced as a whole: no file of an earlier push stays behind
_PUSH_TREE = (
    "umask 077; " + _HOME + 'mkdir -p -- "$(dirname -- "$p")" && t=$(mktemp -d "$p.XXXXXX") || exit; '
    'trap \'rm -rf -- "$t"\' EXIT; mkdir "$t/new" && tar -xf - -C "$t/new" || exit; '
    'if [ -e "$p" ]; then mv -T -- "$p" "$t/old" || exit; fi; mv -T -- "$t/new" "$p"'
)
_packing = threading.Lock()


def push_bytes(
    transport: Transport, host: Host, data: bytes, remote_path: str, mode: int, *, timeout_s: float
) -> CommandResult:
    """Write `data` to `remote_path` (absolute or `~/…`); the file has its mode before it has its bytes."""
    argv = ["sh", "-c", _PUSH_BYTES, "sh", remote_path, f"{mode:04o}"]
    return transport.run(host, argv, timeout_s=timeout_s, stdin=data)


def push_tree(
    transport: Transport,
    host: Host,
    local_dir: Path,
    remote_dir: str,
    *,
    timeout_s: float,
    exclude: Sequence[str] = (),
) -> CommandResult:
    """Make `remote_dir` (absolute or `~/…`) equal to `local_dir`, without names or paths that match `exclude`."""
    argv = ["sh", "-c", _PUSH_TREE, "sh", remote_dir]
    return transport.run(host, argv, timeout_s=timeout_s, stdin=pack(local_dir, exclude))


def pack(local_dir: Path, exclude: Sequence[str] = ()) -> bytes:
    """`local_dir` as a tar file, the same bytes for the same contents; packed once however many hosts take it."""
    paths = tuple(sorted(_walk(local_dir, exclude)))
    stats = [path.lstat() for path in paths]
    with _packing:
        return _pack(local_dir, paths, tuple((stat.st_mtime_ns, stat.st_size) for stat in stats))


def _walk(root: Path, exclude: Sequence[str]) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = [name for name in names if not _excluded(here / name, root, exclude)]
        yield from (here / name for name in (*names, *files) if not _excluded(here / name, root, exclude))


def _excluded(path: Path, root: Path, patterns: Sequence[str]) -> bool:
    relative = path.relative_to(root).as_posix()
    return any(fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(path.name, pattern) for pattern in patterns)


@lru_cache(maxsize=4)
def _pack(root: Path, paths: tuple[Path, ...], state: tuple[tuple[int, int], ...]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in paths:
            archive.add(path, arcname=path.relative_to(root).as_posix(), recursive=False, filter=_plain)
    return packed.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Files, folders and links only, owned by whoever unpacks them."""
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0 if member.isdir() else int(member.mtime)
    return member
