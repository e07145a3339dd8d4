"""Writes the index of each bundled recording after an edit by hand: the commands of today that its files answer.

usage: scripts/index_recordings.py [--check]      --check writes nothing, and exits with 1 if an index is stale

A new KEY.out gets an entry with exit status 0; change it there where the command failed. An entry without a file goes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nodectl.common.declarations import ended
from nodectl.common.resources import recordings_dir
from nodectl.facts.catalogue import commands_for
from nodectl.model.host import Host

_NEW = {"exit_status": 0, "duration_s": 0.02, "time": "2026-10-12T08:00:03Z"}


def indexed(folder: Path) -> str:
    """Return the index of a host's folder: an entry for each file that answers a command of a fact, sorted by key."""
    known = {entry["key"]: entry for entry in json.loads((folder / "index.json").read_text(encoding="utf-8"))}
    answered = {path.stem for path in folder.glob("*.out")}
    commands = {command.key: command for command in commands_for(Host(folder.name, folder.name))}
    index = []
    for key in sorted(answered & set(commands)):
        entry = {"key": key, "argv": list(commands[key].argv)}
        index.append(entry | {name: known.get(key, _NEW)[name] for name in _NEW})
    return json.dumps(index, indent=1) + "\n"


def main() -> None:
    """Write the indexes that are stale, or with --check name them."""
    stale = []
    for path in sorted(recordings_dir().glob("*/*/index.json")):
        text = indexed(path.parent)
        if path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"stale: {', '.join(stale)}; run scripts/index_recordings.py")


if __name__ == "__main__":
    ended(main)
