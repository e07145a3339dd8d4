"""Files that commands need on the host: sent where they are not there yet, and kept under their hashes."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Sequence

from nodectl.facts.site import FOLDER, program_of
from nodectl.model.host import Host
from nodectl.model.recording import Command
from nodectl.transport.base import Transport

_TIMEOUT_S = 120
# Two operators may send at the same time: who is later puts the same bytes there. What nobody has sent for a month is
# of former times, or is sent again.
_KEEP = (
    f'umask 077; d="{FOLDER}"; mkdir -p -- "$d" && chmod 700 "$d" && t=$(mktemp -d "$d.XXXXXX") || exit; '
    'trap \'rm -rf -- "$t"\' EXIT; tar -xmf - -C "$t" && mv -f -- "$t"/* "$d/" || exit; '
    'find "$d" -type f -mtime +30 -exec rm -f {} + || :'
)


def send(transport: Transport, host: Host, commands: Sequence[Command]) -> str:
    """Put the commands' programs where they are looked for; why that was not possible, empty where it was."""
    done = transport.run(host, ["sh", "-c", _KEEP], timeout_s=_TIMEOUT_S, stdin=_packed(commands))
    if done.ok:
        return ""
    complaint = (done.stderr.strip().splitlines() or [""])[-1]
    return done.error or complaint or f"exit status {done.exit_status}"


def _packed(commands: Sequence[Command]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, program in {program_of(command): command.program for command in commands}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(program), 0o700, int(time.time())
            archive.addfile(member, io.BytesIO(program))
    return packed.getvalue()
