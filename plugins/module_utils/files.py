# SPDX-License-Identifier: Apache-2.0
"""Files, links and folders of a node: looked at, compared, written and put back in one step."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable, Iterator

    Entry = dict[str, Any]

# only there where the kernel enforces or logs a policy
SELINUX = "/sys/fs/selinux/policy"
ABSENT: Entry = {"kind": "absent"}
# a folder named under `paths` is one that a role owns wholly; what is bigger belongs under `trees`
MOST_ENTRIES = 2000


class TooBigError(Exception):
    """A folder under `paths` holds more than a record may."""


def look(path: str) -> Entry:
    """Kind, owner, mode, and a file's checksum or a link's target."""
    try:
        state = os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return dict(ABSENT)
        raise
    entry: Entry = {"uid": state.st_uid, "gid": state.st_gid}
    if stat.S_ISLNK(state.st_mode):
        return {"kind": "link", "target": os.readlink(path), **entry}
    entry["mode"] = "%04o" % stat.S_IMODE(state.st_mode)
    if stat.S_ISDIR(state.st_mode):
        return {"kind": "dir", **entry}
    if stat.S_ISREG(state.st_mode):
        return {"kind": "file", "sha256": checksum(path), **entry}
    return {"kind": "other", **entry}


def look_tree(path: str) -> Entry:
    """Return a big folder by the names in it."""
    entry = look(path)
    if entry["kind"] == "dir":
        entry["names"] = sorted(os.listdir(path))
    return entry


def checksum(path: str) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def with_surroundings(path: str) -> Iterator[str]:
    """Yield the path, what lies below it where it is a folder, and the folders above it as `above` gives them."""
    yield path
    if os.path.isdir(path) and not os.path.islink(path):
        count = 0
        for folder, folders, files in os.walk(path):
            for name in sorted(folders + files):
                count += 1
                if count > MOST_ENTRIES:
                    raise TooBigError("%s holds more than %d entries: name it under trees" % (path, MOST_ENTRIES))
                yield os.path.join(folder, name)
    yield from above(path)


def above(path: str) -> Iterator[str]:
    """Each missing folder above, and the first that is there (its owner and mode); never the root."""
    parent = os.path.dirname(path)
    while parent != "/":
        yield parent
        if os.path.lexists(parent):
            return
        parent = os.path.dirname(parent)


def sync_folder(path: str) -> None:
    """Make what was renamed into a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(
    path: str, fill: Callable[[Any], object], *, mode: int, uid: int | None = None, gid: int | None = None
) -> None:
    """Write a new file in one step: next to its place, synced, renamed; nothing half-written is ever seen.

    Without `uid` and `gid` it belongs to who runs this.
    """
    folder = os.path.dirname(path)
    handle, staged = tempfile.mkstemp(dir=folder, prefix=".nodectl-")
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fchown(stream.fileno(), os.geteuid() if uid is None else uid, os.getegid() if gid is None else gid)
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.rename(staged, path)
        relabel(path)
    except BaseException:
        if os.path.lexists(staged):
            os.unlink(staged)
        raise
    sync_folder(folder)


def write_text(path: str, text: str, mode: int = 0o644) -> None:
    """Write a whole file with this text, and make the folders above it."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    write_whole(path, lambda stream: stream.write(text.encode()), mode=mode)


def write_json(path: str, document: Any, mode: int = 0o600) -> None:
    """Write a document as a whole file."""
    write_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n", mode)


def relabel(path: str, *, below: bool = False) -> None:
    """Give it the SELinux context that the policy has for its place; a file renamed into it keeps that of its maker.

    Nothing if the kernel has no SELinux.
    """
    if os.path.exists(SELINUX) and shutil.which("restorecon"):
        options = ["-R"] if below else []
        argv = ["restorecon", *options, path]
        subprocess.run(argv, capture_output=True, check=False)  # pylint: disable=ansible-bad-function


def read_text(path: str) -> str:
    """Return the file's text; empty if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def read_or(path: str, default: str = "") -> str:
    """Return the text of a small file; `default` if it cannot be read, for whatever reason."""
    try:
        return read_text(path) if os.path.exists(path) else default
    except OSError:
        return default


def difference(name: str, before: str, after: str) -> dict[str, str]:
    """One part of what `--diff` shows: a file, or whatever else has this name, before and after."""
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def read_json(path: str) -> dict[str, Any]:
    """Return a document; {} if there is none or it cannot be read."""
    try:
        document = json.loads(read_or(path))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def remove(path: str) -> None:
    """Whatever stands there, a folder with all that it holds."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def sweep(folder: str) -> None:
    """Remove what a killed `write_whole` or `put_link` left in the folder."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder):
            if re.fullmatch(r"\.nodectl-([a-z0-9_]{8}|link)", name):
                remove(os.path.join(folder, name))


def put_back(path: str, before: Entry, content: Callable[[str], str]) -> None:
    """Make the path what the entry says; `content(sha256)` is where a recorded file's content lies."""
    now = look(path)
    if now == before:
        return
    kind = before["kind"]
    if kind == "absent":
        if now["kind"] == "dir":
            if not os.listdir(path):  # an emptied folder of ours goes, one that others use stays
                os.rmdir(path)
        else:
            remove(path)
        return
    if now["kind"] not in ("absent", kind):
        remove(path)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if kind == "link":
        put_link(path, before)
        return
    mode = int(before["mode"], 8)
    if kind == "dir":
        os.makedirs(path, exist_ok=True)
        os.chown(path, before["uid"], before["gid"])
        os.chmod(path, mode)
    elif kind == "file":
        with open(content(before["sha256"]), "rb") as source:
            write_whole(
                path, lambda stream: shutil.copyfileobj(source, stream), mode=mode, uid=before["uid"], gid=before["gid"]
            )


def put_link(path: str, before: Entry) -> None:
    """Swap a link in one step."""
    staged = os.path.join(os.path.dirname(path), ".nodectl-link")
    remove(staged)
    os.symlink(before["target"], staged)
    os.lchown(staged, before["uid"], before["gid"])
    os.rename(staged, path)
    sync_folder(os.path.dirname(path))
