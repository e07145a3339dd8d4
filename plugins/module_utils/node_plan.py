"""Which runs are taken back, and what that means for this node: pure but for looking."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_files, node_live, node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.node_history import closed, look_again
from ansible_collections.nodectl.fleet.plugins.module_utils.node_store import SECTIONS, START, Store, folded

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.node_live import Run

    Record = dict[str, Any]
    Change = dict[str, Any]


class PlanError(Exception):
    """There is no such way back on this node."""


def chosen(store: Store, to: str, packages: bool) -> list[str]:
    """The runs to take back, oldest first: the last that changed something, those after a run, or all of them."""
    names: list[str] = store.names()
    if to == START:
        return ([START] if store.exists(START) else []) + names
    if not to:
        # what an earlier rollback had to leave waits for --packages
        return [name for name in names if packages or not store.load(name).get("left")][-1:]
    if to in names:
        return names[names.index(to) + 1 :]
    if os.path.isdir(os.path.join(store.undone, to)):
        raise PlanError("run %s was itself taken back: choose another of `nodectl rollback --list`" % to)
    # a run that changed nothing here left no record: its name begins with its time
    return [name for name in names if name > to]


class Undo:
    """The chosen runs as one record: what stood before the oldest, and what the newest left."""

    def __init__(self, store: Store, run: Run, runs: list[str], packages: bool) -> None:
        self.store, self.run, self.runs, self.driver_too = store, run, runs, packages
        self.records = {name: closed(run, store.load(name)) for name in runs}
        empty: Record = {section: {} for section in SECTIONS}
        self.record: Record = {"seq": 0, "settled": True, "before": empty, "after": empty}
        for record in self.records.values():
            self.record = folded(self.record, record)
        self.before, self.after = self.record["before"], self.record["after"]
        self.now = look_again(run, self.before)

    def content(self, digest: str) -> str:
        """Where a recorded file's content lies."""
        for name in self.runs:
            path: str = self.store.content(name, digest)
            if os.path.exists(path):
                return path
        raise PlanError("the recorded content %s is gone from %s" % (digest[:12], self.store.runs))

    def path_changes(self) -> list[Change]:
        """Files, links and folders that are not as they were; deeper ones first, so that folders get empty."""
        changes = []
        for path in sorted(self.before["paths"], reverse=True):
            old, now = plain(self.before["paths"][path]), self.now["paths"].get(path, node_files.ABSENT)
            if old == now or (old["kind"] == "absent" and now["kind"] == "dir" and not self.empties(path)):
                continue
            left = self.after["paths"].get(path)
            theirs = now["kind"] in ("file", "link") and left is not None and not alike(now, left)
            action = "remove" if old["kind"] == "absent" else "restore"
            changes.append({"what": "path", "subject": path, "action": action, "conflict": theirs})
        return changes

    def empties(self, folder: str) -> bool:
        """Nothing but what goes itself is in the folder."""
        known = {**self.before["paths"], **self.before["trees"]}
        return all(
            known.get(os.path.join(folder, name), {"kind": "file"})["kind"] == "absent"
            and (not os.path.isdir(os.path.join(folder, name)) or self.goes(os.path.join(folder, name)))
            for name in os.listdir(folder)
        )

    def goes(self, path: str) -> bool:
        """The folder is removed, as one of ours or because it gets empty."""
        return path in self.before["trees"] or os.path.islink(path) or self.empties(path)

    def tree_changes(self) -> list[Change]:
        """Names that are new in big folders go; a link or folder that is gone comes back where it still can."""
        changes: list[Change] = []
        for path in sorted(self.before["trees"], reverse=True):
            old, now = self.before["trees"][path], self.now["trees"][path]
            new = [name for name in now.get("names", ()) if name not in old.get("names", ())]
            if old["kind"] == "dir" and now["kind"] == "dir":
                names = [os.path.join(path, name) for name in new]
                changes += [{"what": "tree", "subject": name, "action": "remove"} for name in names]
            elif {**old, "names": 0} != {**now, "names": 0}:
                action = "remove" if old["kind"] == "absent" else "restore"
                changes.append({"what": "tree", "subject": path, "action": action})
        # a folder that a run moved into another goes back its place before the others are removed
        return sorted(changes, key=lambda change: change["action"] == "remove")

    def unit_changes(self) -> list[Change]:
        """Units that are not enabled or active as they were."""
        changes = []
        for name, old in sorted(self.before["units"].items()):
            now = self.now["units"].get(name, {})
            for field, value in sorted(old.items()):
                if now.get(field) != value:
                    action = "%s -> %s" % (now.get(field, "gone"), value)
                    changes.append({"what": "unit", "subject": name, "action": action, "field": field})
        return changes

    def value_changes(self) -> tuple[list[Change], list[str]]:
        """(values to write back, warnings on those that somebody set since)."""
        changes, warnings = [], []
        for path, old in sorted(self.before["values"].items()):
            now = self.now["values"].get(path)
            if old is None or now == old:
                continue
            if now is None:
                warnings.append("%s is gone, it was %s" % (path, old))
            elif now != self.after["values"].get(path, now):
                warnings.append("%s is %s, which nodectl did not set: left, it was %s" % (path, now, old))
            else:
                changes.append({"what": "value", "subject": path, "action": "%s -> %s" % (now, old), "value": old})
        return changes, warnings

    def live_changes(self) -> list[Change]:
        """Values that a program sets."""
        changes = []
        for key, item in sorted(self.before["live"].items()):
            now = self.now["live"][key]["state"]
            for argv in node_live.live_commands(item, item["state"], now) if now else ():
                changes.append({"what": "live", "subject": key, "action": " ".join(argv), "argv": argv})
        return changes

    def package_changes(self) -> tuple[list[Change], dict[str, str]]:
        """(packages to remove, install or mark, {package that stays: why})."""
        before, now = self.before["packages"], self.now["packages"]
        going = {key for key in before if node_packages.there(now.get(key)) and not node_packages.there(before[key])}
        kept = {key: "driver" for key in before if node_packages.is_driver(key) and before[key] != now.get(key)}
        if self.driver_too:
            kept = {}
        fields = node_packages.parse(node_packages.read_text(node_packages.STATUS), "")[1] if going else {}
        details = {key: fields[key] for key in fields if node_packages.there(now.get(key))}
        for key, by in node_packages.needed(going - set(kept), details).items():
            kept[key] = "needed by %s" % by
        changes = []
        for key, old in sorted(before.items()):
            new = now.get(key)
            if key in kept or old == new:
                continue
            change = {"what": "package", "subject": key, "before": old, "now": new}
            if node_packages.there(new) and not node_packages.there(old):
                change["action"] = "remove %s" % new["version"]
            elif node_packages.there(old) and (not node_packages.there(new) or new["version"] != old["version"]):
                change["action"] = "%s -> %s" % (new["version"] if node_packages.there(new) else "gone", old["version"])
            else:
                change["action"] = "marks"
            changes.append(change)
        return changes, kept


def plain(entry: Record) -> Record:
    """A recorded entry as one that is looked at."""
    return {name: entry[name] for name in entry if name != "whole"}


def alike(one: Record, other: Record) -> bool:
    """The same content or target; who owns it may differ."""
    return all(one.get(name) == other.get(name) for name in ("kind", "sha256", "target"))
