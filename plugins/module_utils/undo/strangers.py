# SPDX-License-Identifier: Apache-2.0
"""Strangers in a role's big folder, which are not nodectl's: a rollback that removes the folder keeps them."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import files

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Collection

# what uv, venv and nodectl put into an environment beside its packages
_SKELETON = re.compile(
    r"(\.gitignore|\.lock|CACHEDIR\.TAG|pyvenv\.cfg|installed|nodectl-[\w.-]+)\Z"
    r"|lib64\Z|bin/(activate[\w.]*|deactivate\.bat|pydoc\.bat|python[\d.]*)\Z"
    r"|lib/python[\d.]+/site-packages/_virtualenv\.(py|pth)\Z"
)
# nodectl writes it last; what is changed later was changed by somebody, but for what uv and nodectl touch in use
_FINISHED = "nodectl-environment.json"
_IN_USE = re.compile(r"(\.lock|installed|nodectl-[\w.-]+)\Z")


def strangers(folder: str, names: Collection[str] | None, homes: Collection[int] = ()) -> list[str]:
    """Return the topmost paths below a folder that nodectl did not make.

    `names` is what a run left in it, None if unknown; folders of these inodes go back to where they came from.
    """
    if os.path.islink(folder) or not os.path.isdir(folder):
        return []
    if os.path.exists(os.path.join(folder, "pyvenv.cfg")):
        return _in_environment(folder)
    found: list[str] = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.lstat(path).st_ino in homes:
            continue
        if names is not None and name not in names and not name.startswith(".partial-"):
            found.append(path)
        elif os.path.exists(os.path.join(path, "pyvenv.cfg")):
            found += strangers(path, None)
    return found


def _in_environment(folder: str) -> list[str]:
    """Return what no package of the environment brought, or somebody changed since; Python's caches do not count."""
    brought, note = _brought(folder), os.path.join(folder, _FINISHED)
    finished = os.lstat(note).st_mtime if os.path.exists(note) else None
    above = {os.path.dirname(path) for path in brought}
    for path in list(above):
        while path:
            path = os.path.dirname(path)
            above.add(path)
    found = []
    for place, folders, names in os.walk(folder):
        here = os.path.relpath(place, folder)
        here = "" if here == "." else here + "/"
        for name in sorted(folders):
            path, kept = os.path.join(place, name), here + name
            known = kept in above or kept in ("bin", "lib", "include") or name == "__pycache__"
            if not _is_ours(path, kept, brought, finished) if os.path.islink(path) else not known:
                found.append(path)
            if not known or name == "__pycache__":
                folders.remove(name)
        for name in sorted(names):
            path, kept = os.path.join(place, name), here + name
            if not _is_ours(path, kept, brought, finished):
                found.append(path)
    return found


def _is_ours(path: str, kept: str, brought: Collection[str], finished: float | None) -> bool:
    """Return whether nodectl left the file or link so; it links packages of another environment."""
    if _IN_USE.match(kept):
        return True
    named = kept in brought or _SKELETON.match(kept) is not None
    if finished is None:
        return named
    return (named or os.path.islink(path)) and os.lstat(path).st_mtime <= finished


def _brought(folder: str) -> set[str]:
    """Paths below the environment's folder that its packages name in their RECORD."""
    brought = set()
    for record in glob.glob(os.path.join(glob.escape(folder), "lib/python3*/site-packages/*.dist-info/RECORD")):
        packages = os.path.dirname(os.path.dirname(record))
        for line in files.read_or(record).splitlines():
            # the path, its digest and its size; a path with a comma stands in quotes
            name = line.rsplit(",", 2)[0].strip('"')
            brought.add(os.path.relpath(os.path.normpath(os.path.join(packages, name)), folder))
        brought.add(os.path.relpath(record, folder))
    return brought
