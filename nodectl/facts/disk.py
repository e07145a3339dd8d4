"""Room on the host: file systems by the path asked for."""

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry
from nodectl.model.facts import Disk
from nodectl.model.recording import Command, Recording
from nodectl.parsers.df import FileSystem, parse_df

# the state folder comes with nodectl's first write: until then its nearest parent tells; a line each, in this order
_SHOW = """\
state=${XDG_STATE_HOME:-$HOME/.local/state}/nodectl
printf '%s\\n' "$state"
while [ ! -e "$state" ]; do state=${state%/*}; done
df -kP / "${state:-/}"
"""
COMMAND = Command("df", ("sh", "-c", _SHOW))
_SHM_MOUNT = "/dev/shm"  # noqa: S108 - read, never written
SHM = Command("df-shm", ("df", "-kP", _SHM_MOUNT))


def shm(recording: Recording) -> FileSystem | None:
    """Shared memory's file system, None where it is no file system of its own."""
    found = entry(recording, SHM.key)
    rows = parse_df(found.stdout) if found.exit_status == 0 else ()
    return next((row for row in rows if row.mount == _SHM_MOUNT), None)


def _read(recording: Recording) -> Disk:
    folder, _, table = entry(recording, COMMAND.key).stdout.partition("\n")
    rows = parse_df(table)
    if len(rows) != 2:
        raise ParseError(f"df shows {len(rows)} file systems, not those of / and {folder}")
    root, state = rows
    return Disk(root.size_mib, root.free_mib, folder, state.free_mib)


FACT = Fact("disk", lambda venv: (COMMAND,), _read)
