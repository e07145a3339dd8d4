# SPDX-License-Identifier: Apache-2.0
"""The way back from a node's records: what differs from what stood before, and how it is put back.

In this order: units stopped, files, what reads them, packages, units started, live values. Each step may be cut off and
run again.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files, gpu_hw, node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import live
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.record import closed, look_again, plain
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import START, Store, empty, folded
from ansible_collections.nodectl.fleet.plugins.module_utils.wanted_packages import there

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable, Iterator

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Record = dict[str, Any]
    Change = dict[str, Any]

# what has to read a file again when it changed, by the folder that it lies in; all but the last only where systemd runs
READERS = (
    (("/etc/systemd/system.conf.d", "/etc/systemd/user.conf.d"), ["systemctl", "daemon-reexec"]),
    (
        ("/etc/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/", "/usr/local/lib/systemd/"),
        ["systemctl", "daemon-reload"],
    ),
    (("/etc/systemd/logind.conf",), ["systemctl", "try-restart", "systemd-logind.service"]),
    (("/etc/udev/rules.d/",), ["udevadm", "control", "--reload"]),
    (("/etc/ld.so.conf", "/usr/local/cuda"), ["ldconfig"]),
)
AT_BOOT = ("/etc/modprobe.d/", "/etc/modules-load.d/", "/etc/default/grub")


class RestoreError(OSError):
    """There is no such way back on this node."""


def chosen(store: Store, names: list[str], to: str, driver_too: bool) -> list[str]:
    """Return the runs to take back, of `names`, oldest first: the last one, those after a run, or all of them."""
    if to == START:
        return names
    if not to:
        # what an earlier rollback had to leave waits for --packages
        return [name for name in names if driver_too or not store.load(name).get("left")][-1:]
    if to in names:
        return names[names.index(to) + 1 :]
    if os.path.isdir(os.path.join(store.undone, to)):
        raise RestoreError("run %s was itself taken back: choose another of `nodectl rollback --list`" % to)
    # a run that changed nothing here left no record: its name begins with its time
    return [name for name in names if name > to]


class Restore:
    """The chosen runs as one record: what stood before the oldest, what the newest left, and what stands now.

    `errors` and `warnings` are lines of `all`; without `driver_too` the packages of the GPU driver stay.
    """

    def __init__(self, store: Store, run: Run, runs: list[str], driver_too: bool = False) -> None:
        self.store, self.run, self.runs, self.driver_too = store, run, runs, driver_too
        self.records = {name: closed(run, store.load(name)) for name in runs}
        record: Record = {"seq": 0, "settled": True, "before": empty(), "after": empty()}
        for newer in self.records.values():
            record = folded(record, newer)
        self.before, self.after = record["before"], record["after"]
        self.now = look_again(run, self.before)
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def content(self, digest: str) -> str:
        """Return where a recorded file's content lies."""
        for name in self.runs:
            path = self.store.content(name, digest)
            if os.path.exists(path):
                return path
        raise RestoreError("the recorded content %s is gone from %s" % (digest[:12], self.store.runs))

    # what differs

    def path_changes(self) -> list[Change]:
        """Files, links and folders that are not as they were; deeper ones first, so that folders get empty."""
        changes = []
        for path in sorted(self.before["paths"], reverse=True):
            old, now = plain(self.before["paths"][path]), self.now["paths"].get(path, files.ABSENT)
            # a folder that was absent goes with the last file in it
            if old == now or (old["kind"] == "absent" and now["kind"] == "dir"):
                continue
            left = self.after["paths"].get(path)
            # who owns it may differ
            changed = left is not None and any(now.get(name) != left.get(name) for name in ("kind", "sha256", "target"))
            theirs = now["kind"] in ("file", "link") and changed
            action = "remove" if old["kind"] == "absent" else "restore"
            changes.append({"what": "path", "subject": path, "action": action, "conflict": theirs})
        return changes

    def tree_changes(self) -> list[Change]:
        """Names that a run left new in big folders go; a link comes back."""
        changes: list[Change] = []
        for path in sorted(self.before["trees"], reverse=True):
            old, now = self.before["trees"][path], self.now["trees"][path]
            left = self.after["trees"].get(path, {}).get("names", ())
            if now["kind"] == "dir" and old["kind"] in ("dir", "absent"):
                new = [name for name in now["names"] if name not in old.get("names", ())]
                ours = [os.path.join(path, name) for name in new if name in left or name.startswith(".partial-")]
                changes += [{"what": "tree", "subject": name, "action": "remove"} for name in ours]
            elif {**old, "names": 0} != {**now, "names": 0}:
                action = "remove" if old["kind"] == "absent" else "restore"
                changes.append({"what": "tree", "subject": path, "action": action})
        return changes

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
            for argv in live.live_commands(item, item["state"], now) if now else ():
                changes.append({"what": "live", "subject": key, "action": " ".join(argv), "argv": argv})
        return changes

    def package_changes(self) -> tuple[list[Change], dict[str, str]]:
        """Return (packages to remove, install or mark, {package that stays: why})."""
        before, now = self.before["packages"], self.now["packages"]
        going = {key for key in before if there(now.get(key)) and not there(before[key])}
        changed = [key for key in before if moved(before[key], now.get(key))]
        kept = {key: "driver" for key in changed if of_driver(key, before[key]) or of_driver(key, now.get(key))}
        if self.driver_too:
            kept = {}
        kept.update(node_packages.needed(self.run, going - set(kept)))
        changes = []
        for key, old in sorted(before.items()):
            new = now.get(key)
            if key in kept or old == new:
                continue
            change = {"what": "package", "subject": key, "before": old, "now": new}
            if there(new) and not there(old):
                change["action"] = "remove %s" % new["version"]
            elif there(old) and (not there(new) or new["version"] != old["version"]):
                change["action"] = "%s -> %s" % (new["version"] if there(new) else "gone", old["version"])
            else:
                change["action"] = "marks"
            changes.append(change)
        return changes, kept

    # putting it back

    def all(self) -> bool:
        """Everything, in the order that each step needs; true if anything was changed.

        Without errors the runs are taken back: their records move aside.
        """
        paths, trees, units = self.path_changes(), self.tree_changes(), self.unit_changes()
        changed_packages, kept = self.package_changes()
        values, self.warnings = self.value_changes()
        commands = self.live_changes()
        for key, item in sorted(self.before["live"].items()):
            unread = self.now["live"][key]["state"].get("")
            self.errors += ["%s: not restored: %s" % (key, unread)] if unread and item["state"] else []
        stops, starts = self.unit_commands(units)
        for argv in stops:
            self.command(argv)
        self.put_files(paths, trees)
        self.reread(change["subject"] for change in paths)
        self.errors += node_packages.put_back(self.run, changed_packages)
        if changed_packages:  # their scripts come and go with files of their own
            self.now["paths"] = {path: files.look(path) for path in self.before["paths"]}
            self.put_files(self.path_changes(), [])
        for argv in starts:
            self.command(argv)
        for change in values:
            reason = live.write_value(change["subject"], change["value"])
            self.errors += ["%s: %s" % (change["subject"], reason)] if reason else []
        for change in commands:
            self.command(change["argv"])
        if not self.errors:
            self.close(kept)
        return bool(paths or trees or units or changed_packages or values or commands)

    def command(self, argv: list[str]) -> None:
        """Run a program; note why it failed."""
        if shutil.which(argv[0]):
            self.errors += filter(None, [gpu_hw.execute(self.run, argv)])

    def keep_theirs(self, change: Change) -> None:
        """Keep a file that somebody changed after us in the record's `conflicts/`, before the former one returns."""
        if change["conflict"]:
            target = os.path.join(self.store.folder(self.runs[-1]), "conflicts") + change["subject"]
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            files.remove(target)
            shutil.copy2(change["subject"], target, follow_symlinks=False)

    def put_files(self, paths: list[Change], trees: list[Change]) -> None:
        """Trees first: the folders above them get empty.  What cannot be put back is an error, and all others are."""
        for path, action in ((change["subject"], change["action"]) for change in trees):
            old = self.before["trees"].get(path, files.ABSENT)
            with self.noting(path):
                if action == "remove" or old["kind"] == "link":
                    files.remove(path)
                    files.put_back(path, files.ABSENT if action == "remove" else old, self.content)
                else:  # the content of a folder was not recorded
                    self.warnings.append("%s was replaced since, and its old content was not recorded" % path)
        for change in paths:
            path = change["subject"]
            with self.noting(path):
                self.keep_theirs(change)
                files.put_back(path, plain(self.before["paths"][path]), self.content)
        before = {**self.before["paths"], **self.before["trees"]}
        for path in sorted(before, reverse=True):
            if before[path]["kind"] == "absent" and files.look(path)["kind"] == "dir":
                with self.noting(path):
                    files.put_back(path, files.ABSENT, self.content)

    @contextmanager
    def noting(self, path: str) -> Iterator[None]:
        """Note what cannot be put back here as an error, which ends nothing else."""
        try:
            yield
        except OSError as error:
            self.errors.append("%s: %s" % (path, error.strerror or error))

    def unit_commands(self, units: list[Change]) -> tuple[list[list[str]], list[list[str]]]:
        """Return (what stops and disables units before their files go, what starts them when those are back)."""
        stops, starts = [], []
        for change in units:
            name, field = change["subject"], change["field"]
            old, now = self.before["units"][name][field], self.now["units"].get(name, {}).get(field)
            stop = {"active": "stop", "enabled": "disable", "masked": "unmask"}.get(now)
            start = {"active": "start", "enabled": "enable", "masked": "mask"}.get(old)
            if stop:
                stops.append(["systemctl", stop, "--", name])
            if start and (start != "start" or live.systemd_runs()):
                starts.append(["systemctl", start, "--", name])
        return stops, starts

    def reread(self, paths: Iterable[str]) -> None:
        """Let programs read what came back."""
        changed = list(paths)
        for folders, argv in READERS:
            applies = argv[0] == "ldconfig" or live.systemd_runs()
            if applies and any(path.startswith(folders) for path in changed):
                self.command(argv)
        late = [path for path in changed if path.startswith(AT_BOOT)]
        if late:
            self.warnings.append("%s: takes effect at the next boot" % ", ".join(sorted(late)))

    def close(self, kept: dict[str, str]) -> None:
        """Close the runs, newest first, as taken back; one whose packages had to stay keeps those in its record."""
        for name in reversed(self.runs):
            record = self.records[name]
            rest = {key: record["before"]["packages"][key] for key in kept if key in record["before"]["packages"]}
            if not rest:
                self.store.move_to_undone(name)
                continue
            after = {key: record["after"]["packages"].get(key) for key in rest}
            sides = {"before": {**empty(), "packages": rest}, "after": {**empty(), "packages": after}}
            self.store.extend(name, {**record, **sides, "left": True}, {})


def moved(before: dict[str, Any] | None, now: dict[str, Any] | None) -> bool:
    """Return whether it came, went or has another version; a hold alone moves nothing."""
    if before is None or now is None:
        return before is not now
    return any(before[field] != now[field] for field in ("version", "state"))


def of_driver(key: str, package: dict[str, Any] | None) -> bool:
    """Return whether the package as it was or is, None if it was not there, is a part of a GPU driver."""
    return package is not None and bool(node_packages.kind().is_driver(key, package["version"]))
