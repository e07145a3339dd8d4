# SPDX-License-Identifier: Apache-2.0
"""The store of what stood on a node before: one folder a run, written completely before the first change.

Below `/var/lib/nodectl`: `runs/` and `undone/` (root's alone), `roles/` (`held.py`), `trials/` (`trials.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator

    Record = dict[str, Any]

ROOT = "/var/lib/nodectl"
# stands for the state before the first run
START = "start"
SECTIONS = ("paths", "trees", "units", "values", "packages", "live")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Store:
    """The records below one folder; used under `locked()` by one process at a time."""

    def __init__(self, root: str = ROOT) -> None:
        self.root, self.runs, self.undone = root, os.path.join(root, "runs"), os.path.join(root, "undone")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folders (the records are root's alone) and keep other processes out."""
        os.makedirs(self.root, mode=0o755, exist_ok=True)
        for folder in (self.runs, self.undone):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
        with open(os.path.join(self.runs, ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.sweep()
            yield

    def folder(self, run: str) -> str:
        """Return the folder of a run's record, which need not be there."""
        return os.path.join(self.runs, run)

    def names(self) -> list[str]:
        """All runs, oldest first."""
        with contextlib.suppress(FileNotFoundError):
            names = [name for name in os.listdir(self.runs) if RUN_NAME.fullmatch(name)]
            return sorted(names, key=lambda name: (self.load(name)["seq"], name))
        return []

    def load(self, run: str) -> Record:
        """Load a run's record; one that cannot be read is an error, never an empty record."""
        with open(os.path.join(self.folder(run), "record.json"), encoding="utf-8") as stream:
            record: Record = json.load(stream)
        return record

    def exists(self, run: str) -> bool:
        """Return whether the run has a complete record."""
        return os.path.exists(os.path.join(self.folder(run), "record.json"))

    def create(self, run: str, about: Record, record: Record, contents: dict[str, str]) -> None:
        """Create a run's folder, made next to its place and renamed when it is complete."""
        staged = os.path.join(self.runs, ".new-" + run)
        for folder in (staged, os.path.join(staged, "files")):
            os.mkdir(folder, 0o700)
        self.keep(staged, contents)
        files.write_json(os.path.join(staged, "run.json"), about)
        files.write_json(os.path.join(staged, "record.json"), record)
        files.sync_folder(staged)
        os.rename(staged, self.folder(run))
        files.sync_folder(self.runs)

    def extend(self, run: str, record: Record, contents: dict[str, str]) -> None:
        """Contents first, then the record that names them."""
        self.keep(self.folder(run), contents)
        files.write_json(os.path.join(self.folder(run), "record.json"), record)

    def keep(self, folder: str, contents: dict[str, str]) -> None:
        """Copy files' contents, {sha256: path}, each once."""
        for digest, path in sorted(contents.items()):
            target = os.path.join(folder, "files", digest)
            if not os.path.exists(target):
                with open(path, "rb") as source:
                    files.write_whole(target, lambda stream: shutil.copyfileobj(source, stream), mode=0o600)
                if files.checksum(target) != digest:
                    os.unlink(target)
                    raise OSError("%s changed while it was recorded: run again" % path)

    def content(self, run: str, digest: str) -> str:
        """Return where the recorded content of a file lies."""
        return os.path.join(self.folder(run), "files", digest)

    def drop(self, run: str) -> None:
        """Forget a run: gone by name in one step, then for good."""
        dying = os.path.join(self.runs, ".old-" + run)
        os.rename(self.folder(run), dying)
        shutil.rmtree(dying)

    def move_to_undone(self, run: str) -> None:
        """Move the record of a run that was taken back aside, where it stays to be read."""
        target = os.path.join(self.undone, run)
        if os.path.lexists(target):
            shutil.rmtree(target)
        os.rename(self.folder(run), target)

    def sweep(self) -> None:
        """Take away what a killed process left: folders that never got, or no longer have, their name."""
        for name in os.listdir(self.runs):
            if name.startswith((".new-", ".old-")):
                shutil.rmtree(os.path.join(self.runs, name))
        for folder in [self.root, *(os.path.join(self.runs, name) for name in os.listdir(self.runs))]:
            files.sweep(folder)
            files.sweep(os.path.join(folder, "files"))


def empty() -> Record:
    """Return a record's before or after in which nothing is noted."""
    return {section: {} for section in SECTIONS}


def folded(older: Record, newer: Record) -> Record:
    """Pure: both runs as one: what stood before the older, what the newer left."""
    result: Record = {"seq": older["seq"], "settled": newer["settled"], "before": empty(), "after": empty()}
    for section in SECTIONS:
        result["before"][section] = {**newer["before"].get(section, {}), **older["before"].get(section, {})}
        result["after"][section] = {**older["after"].get(section, {}), **newer["after"].get(section, {})}
    return result
