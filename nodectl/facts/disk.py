"""Room on the host: file systems by the path asked for, and what is mounted."""

import re

from nodectl.common.node_paths import STATE_FOLDER
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, output
from nodectl.model.facts import Disk
from nodectl.model.recording import Command, Recording
from nodectl.model.system import Mount, Mounts
from nodectl.parsers.linux.df import FileSystem, parse_df

# the state folder comes with nodectl's first write: until then its nearest parent tells; a line each, in this order
_SHOW = f"""\
state={STATE_FOLDER}
printf '%s\\n' "$state"
while [ ! -e "$state" ]; do state=${{state%/*}}; done
df -kP / "${{state:-/}}"
df -iP / "${{state:-/}}"
"""
COMMAND = Command("df", ("sh", "-c", _SHOW))
_SHM_MOUNT = "/dev/shm"  # noqa: S108 - read, never written
SHM = Command("df-shm", ("df", "-kP", _SHM_MOUNT))
_INODES = re.compile(r".*?\s(\d+)\s+(\d+)\s+(\d+)\s+(?:\d+%|-)\s+(/.*)")
_OCTAL = re.compile(r"\\([0-7]{3})")


def shm(recording: Recording) -> FileSystem | None:
    """Shared memory's file system, None where it is no file system of its own."""
    found = entry(recording, SHM.key)
    table = parse_df(found.stdout) if found.exit_status == 0 else ()
    return next((row for row in table if row.mount == _SHM_MOUNT), None)


def _read(recording: Recording) -> Disk:
    folder, _, text = entry(recording, COMMAND.key).stdout.partition("\n")
    head, newline, inodes = text.rpartition("\nFilesystem ")
    table = parse_df(head if newline else text)
    if len(table) != 2:
        raise ParseError(f"df shows {len(table)} file systems, not those of / and {folder}")
    root, state = table
    used = [_inodes_used(line) for line in inodes.splitlines()[1:]] if newline else []
    root_used, state_used = used if len(used) == 2 else (None, None)
    return Disk(root.size_mib, root.free_mib, folder, state.free_mib, root_used, state_used)


def _inodes_used(line: str) -> int | None:
    """Percent in use; a file system that makes inodes as it needs them says 0 of 0."""
    match = _INODES.fullmatch(line)
    if match is None or int(match[1]) == 0:
        return None
    return round(100 * int(match[2]) / int(match[1]))


def _mounts(recording: Recording) -> Mounts:
    found = []
    for number, line in enumerate(output(recording, "mounts").splitlines(), start=1):
        words = [_OCTAL.sub(lambda match: chr(int(match[1], 8)), word) for word in line.split(" ")]
        if len(words) < 4:
            raise ParseError(f"mounts: line {number}: {line!r}")
        source, target, kind, options = words[:4]
        found.append(Mount(target, source, kind, tuple(options.split(","))))
    return Mounts(tuple(found))


FACT = Fact("disk", lambda venv: (COMMAND,), _read)
MOUNTS = Fact("mounts", lambda venv: (Command("mounts", ("cat", "/proc/self/mounts")),), _mounts)
