"""Room on the host: the root file system, and the one of nodectl's state folder."""

import re
from dataclasses import dataclass

from nodectl.common.node_paths import STATE_FOLDER
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, gib, script
from nodectl.model.recording import Recording

# the state folder comes with nodectl's first write: until then its nearest parent tells; a line each, in this order
_SHOW = f"""\
state={STATE_FOLDER}
printf '%s\\n' "$state"
while [ -n "$state" ] && [ ! -e "$state" ]; do
  case $state in */*) state=${{state%/*}} ;; *) state=. ;; esac
done
set -- / "${{state:-/}}"
[ ! -d /var/log ] || set -- "$@" /var/log
df -kP "$@"
set -- / "${{state:-/}}"
[ ! -d /home ] || set -- "$@" /home
df -iP "$@"
"""
# names may hold spaces; the numbers between them do not
_ROW = re.compile(r"(?P<device>.+?)\s+(?P<size>\d+)\s+\d+\s+(?P<free>-?\d+)\s+(?:(?P<used>\d+)%|-)\s+(?P<mount>/.*)")
_INODES = re.compile(r".*?\s(\d+)\s+(\d+)\s+(\d+)\s+(?:\d+%|-)\s+(/.*)")


@dataclass(frozen=True, slots=True)
class FileSystem:
    """One row of `df`: `free_mib` is what a normal user may still write, `used_percent` of what one may use at all."""

    device: str
    mount: str
    size_mib: int
    free_mib: int
    used_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """Space for everybody (`root`) and where nodectl keeps its state on the host; `log` is /var/log's file system.

    Percentages of inodes in use; None where the file system has no fixed number of them.
    """

    root_size_mib: int
    root_free_mib: int
    state_folder: str
    state_free_mib: int
    root_inodes_used_percent: int | None = None
    state_inodes_used_percent: int | None = None
    home_inodes_used_percent: int | None = None
    root_used_percent: int | None = None
    state_used_percent: int | None = None
    log: FileSystem | None = None


def parse_df(text: str) -> tuple[FileSystem, ...]:
    """The rows of `df -kP` in its order, which is that of its arguments; ParseError for a row that is none."""
    rows = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        match = _ROW.fullmatch(line)
        if match is None:
            raise ParseError(f"df line {number}: {line!r}")
        size_mib, free_mib = int(match["size"]) // 1024, int(match["free"]) // 1024
        used = int(match["used"]) if match["used"] else None
        rows.append(FileSystem(match["device"], match["mount"], size_mib, free_mib, used))
    if not rows:
        raise ParseError("df shows no file system")
    return tuple(rows)


def _read(recording: Recording) -> Disk:
    folder, _, text = entry(recording, "df").stdout.partition("\n")
    head, newline, inodes = text.rpartition("\nFilesystem ")
    table = parse_df(head if newline else text)
    if len(table) not in (2, 3):
        raise ParseError(f"df shows {len(table)} file systems, not those of /, {folder} and /var/log")
    root, state, *logs = table
    used = [_inodes_used_percent(line) for line in inodes.splitlines()[1:]] if newline else []
    # a host without /home has no third
    root_used, state_used, home_used = [*used, None][:3] if len(used) in (2, 3) else (None, None, None)
    return Disk(
        *(root.size_mib, root.free_mib, folder, state.free_mib, root_used, state_used, home_used),
        root_used_percent=root.used_percent,
        state_used_percent=state.used_percent,
        log=logs[0] if logs else None,
    )


def _inodes_used_percent(line: str) -> int | None:
    """Return None for a file system that makes inodes as it needs them: it says 0 of 0."""
    match = _INODES.fullmatch(line)
    if match is None or int(match[1]) == 0:
        return None
    return round(100 * int(match[2]) / int(match[1]))


def _words(disk: Disk) -> str:
    return f"/ {gib(disk.root_free_mib)} free of {gib(disk.root_size_mib)}"


FACT = Fact("disk", (script("df", _SHOW, waits=True),), _read, _words, row=800)
