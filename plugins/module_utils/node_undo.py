"""A node's way back, done: units, files, packages, units again, values; every step may be cut off and run again."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_apt, node_files, node_live
from ansible_collections.nodectl.fleet.plugins.module_utils.node_plan import Undo, plain
from ansible_collections.nodectl.fleet.plugins.module_utils.node_store import SECTIONS

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    Change = dict[str, Any]

# what has to read a file anew when it changed, by the folder that it lies in; all but the last only where systemd runs
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


class Undoing:
    """Does what a plan says; collects what could not be done."""

    def __init__(self, undo: Undo) -> None:
        self.undo, self.run = undo, undo.run
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def all(self) -> bool:
        """Everything, in the order that each step needs; true if anything was changed."""
        undo = self.undo
        paths, trees, units = undo.path_changes(), undo.tree_changes(), undo.unit_changes()
        packages, kept = undo.package_changes()
        values, self.warnings = undo.value_changes()
        live = undo.live_changes()
        self.keep_theirs(paths)
        self.stop_units(units)
        self.files(paths, trees)
        self.reread(change["subject"] for change in paths)
        self.errors += node_apt.put_back(self.run, packages)
        if packages:  # their scripts come and go with files of their own
            undo.now["paths"] = {path: node_files.look(path) for path in undo.before["paths"]}
            self.files(undo.path_changes(), [])
        self.start_units(units)
        for change in values:
            reason = node_live.write_value(change["subject"], change["value"])
            self.errors += ["%s: %s" % (change["subject"], reason)] if reason else []
        for change in live:
            self.command(change["argv"])
        if not self.errors:
            self.close(kept)
        return bool(paths or trees or units or packages or values or live)

    def command(self, argv: list[str]) -> None:
        """Run a program; what it says against it is an error."""
        if shutil.which(argv[0]):
            status, out, err = self.run(argv)
            if status != 0:
                self.errors.append("%s ended with %d: %s" % (" ".join(argv), status, (err or out).strip()))

    def keep_theirs(self, paths: list[Change]) -> None:
        """A file that somebody changed after us stays beside the record before ours takes its place."""
        folder = os.path.join(self.undo.store.folder(self.undo.runs[-1]), "conflicts")
        for change in paths:
            if change["conflict"]:
                target = folder + change["subject"]
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
                node_files.remove(target)
                shutil.copy2(change["subject"], target, follow_symlinks=False)

    def files(self, paths: list[Change], trees: list[Change]) -> None:
        """Trees first: the folders above them get empty."""
        undo = self.undo
        for change in trees:
            self.tree(change["subject"], change["action"])
        for change in paths:
            if change["action"] == "remove" and undo.now["paths"].get(change["subject"], {}).get("kind") == "dir":
                continue
            if change["subject"] in undo.before["paths"]:
                node_files.put_back(change["subject"], plain(undo.before["paths"][change["subject"]]), undo.content)
        for path in sorted(undo.before["paths"], reverse=True):
            if undo.before["paths"][path]["kind"] == "absent" and node_files.look(path)["kind"] == "dir":
                node_files.put_back(path, node_files.ABSENT, undo.content)

    def tree(self, path: str, action: str) -> None:
        """Remove what is new; a link comes back, a moved folder by its inode; else say that it cannot."""
        if action == "remove":
            node_files.remove(path)
            return
        old = self.undo.before["trees"][path]
        if old["kind"] == "link":
            node_files.remove(path) if os.path.isdir(path) and not os.path.islink(path) else None
            node_files.put_back(path, old, self.undo.content)
            return
        for other, state in self.undo.now["trees"].items():
            for name in state.get("names", ()):
                moved = os.path.join(other, name)
                if os.path.lexists(moved) and os.lstat(moved).st_ino == old.get("inode"):
                    if os.path.islink(path):
                        os.unlink(path)
                    os.rename(moved, path)
                    return
        self.warnings.append("%s was made anew since, and its old content was not recorded" % path)

    def stop_units(self, units: list[Change]) -> None:
        """Before their files go: stop and disable what was not running or enabled."""
        for change in units:
            name, old = change["subject"], self.undo.before["units"][change["subject"]]
            now = self.undo.now["units"].get(name, {})
            if change["field"] == "active" and old["active"] != "active" and now.get("active") == "active":
                self.command(["systemctl", "stop", "--", name])
            if change["field"] == "enabled" and now.get("enabled") == "enabled":
                self.command(["systemctl", "disable", "--", name])
            if change["field"] == "enabled" and now.get("enabled") == "masked":
                self.command(["systemctl", "unmask", "--", name])

    def start_units(self, units: list[Change]) -> None:
        """After their files are back."""
        for change in units:
            old = self.undo.before["units"][change["subject"]]
            verb = {"enabled": "enable", "masked": "mask"}.get(old["enabled"]) if change["field"] == "enabled" else None
            if change["field"] == "active" and old["active"] == "active" and node_live.systemd_runs():
                verb = "start"
            if verb:
                self.command(["systemctl", verb, "--", change["subject"]])

    def reread(self, paths: Iterable[str]) -> None:
        """Let programs read what came back."""
        changed = list(paths)
        for folders, argv in READERS:
            applies = argv[0] == "ldconfig" or node_live.systemd_runs()
            if applies and any(path.startswith(folders) for path in changed):
                self.command(argv)
        late = [path for path in changed if path.startswith(AT_BOOT)]
        if late:
            self.warnings.append("%s: takes effect at the next boot" % ", ".join(sorted(late)))

    def close(self, kept: dict[str, str]) -> None:
        """The runs are taken back, newest first; one whose packages had to stay keeps those in its record."""
        store = self.undo.store
        for name in reversed(self.undo.runs):
            record = self.undo.records[name]
            rest = {key: record["before"]["packages"][key] for key in kept if key in record["before"]["packages"]}
            if not rest:
                store.move_to_undone(name)
                continue
            empty: dict[str, Any] = {section: {} for section in SECTIONS}
            after = {key: record["after"]["packages"].get(key) for key in rest}
            left = {"left": True, "before": {**empty, "packages": rest}, "after": {**empty, "packages": after}}
            store.extend(name, {**record, **left}, {})
