# SPDX-License-Identifier: Apache-2.0
"""Values that a role holds on a node between runs: each that it set, and what stood there before it did.

One file a role in the store, {key: {"before": value, "after": value}}. A key is a sysctl's name, a kernel file's path,
`rings INTERFACE` or `gpu UUID FIELD`. What is no longer wanted is given back, unless somebody else has set it since.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import live

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable, Collection, Mapping

    Entry = dict[str, Any]


class Held:
    """One role's file; written before the role sets anything, and again when it has."""

    def __init__(self, path: str) -> None:
        self.path = path
        text = files.read_text(path)
        # one that cannot be read is an error: without it our own values would pass for the host's
        self.entries: dict[str, Entry] = json.loads(text) if text else {}

    def before(self, key: str, now: Any) -> Any:
        """Return what stood there before the role; a value that it did not put there is the host's own, also later."""
        entry = self.entries.get(key)
        return entry["before"] if entry and entry["after"] == now else now

    def unwanted(self, wanted: Collection[str], read: Callable[[str], Any]) -> dict[str, Any]:
        """{key: value to give back}; `read(key)` is what stands there now."""
        return {
            key: entry["before"]
            for key, entry in sorted(self.entries.items())
            if key not in wanted and entry["before"] != entry["after"] == read(key)
        }

    def begin(self, entries: Mapping[str, Entry]) -> None:
        """Before the first change: the file also says what the former values go back to."""
        self._write({**self.entries, **entries})

    def settle(self, entries: Mapping[str, Entry]) -> None:
        """After the last change: only what the role holds now; no file where that is nothing."""
        self._write({key: entry for key, entry in entries.items() if entry["before"] != entry["after"]})

    def _write(self, entries: Mapping[str, Entry]) -> None:
        if entries and entries != files.read_json(self.path):
            files.write_json(self.path, entries, 0o644)
        elif not entries and os.path.exists(self.path):
            os.unlink(self.path)


def touched(paths: Collection[str]) -> tuple[list[str], list[dict[str, str]]]:
    """(kernel files, items that only a program reads) of what the roles of these files hold: they may give it back."""
    values: list[str] = []
    items: list[dict[str, str]] = []
    for key in sorted({key for path in paths for key in Held(path).entries}):
        kind, _unused, name = key.partition(" ")
        if kind == "rings":
            items.append({"kind": "rings", "interface": name})
        elif kind == "gpu":
            items.append({"kind": "gpu"})
        else:
            values.append(key if key.startswith("/") else live.sysctl_path(key))
    return values, items
