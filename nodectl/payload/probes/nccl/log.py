"""NCCL's own log of one rank: asked for by its environment, written to a file, reduced to what proves something.

The file has no name: nothing of it stays on the host, however its process ends. It is turned away while operations are
timed, as each of them writes a line.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Set

SUBSYSTEMS = "INIT,NET,ENV,TUNING"
MOST_LINES = 400
MOST_CHARS = 300
MOST_BYTES = 64 << 20
_CHOSEN = "Bytes -> Algo"
_MESSAGE = re.compile(r"NCCL (?:INFO|WARN|VERSION|ABORT)\b.*|NCCL version \S+.*")
_PROVES = re.compile(
    r"NET/|Using network|Bootstrap ?:|NET plugin|\bvia [A-Z]|GPU Direct RDMA|coll channels|Bytes -> Algo"
    r"|set by environment|libibverbs|NCCL version|NCCL WARN"
)
# of connections only the kind counts, not between whom and on which channel
_VIA = re.compile(r".*?(?=\[(?:send|receive)\] via |via [A-Z])")


class Log:
    """The log of this process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="nodectl-nccl-")  # noqa: SIM115 - open as long as NCCL writes
        self.number = self._file.fileno()
        self._handle: Optional[int] = None
        self._kept: Optional[int] = None
        self._told = 0

    def environment(self) -> Dict[str, str]:
        """For this process only; what the host's own settings say of the log does not count."""
        path = "/proc/self/fd/%d" % self.number
        return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": SUBSYSTEMS, "NCCL_DEBUG_FILE": path}

    def pause(self) -> None:
        """Turn lines away from here on; nothing happens where NCCL has not opened the file."""
        handle = self._nccl_handle()
        if handle is None:
            return
        if self._kept is None:
            self._kept = os.dup(handle)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, handle, inheritable=False)
        os.close(nowhere)

    def resume(self) -> None:
        """Lines are kept again."""
        if self._kept is not None and self._handle is not None:
            os.dup2(self._kept, self._handle, inheritable=False)

    def lines(self) -> List[str]:
        """Return what was kept, reduced."""
        return reduced(self._text(0).splitlines())

    def chosen(self) -> Optional[str]:
        """Return the last choice of algorithm and protocol that was logged since this was asked before."""
        text = self._text(self._told)
        self._told += len(text.encode(errors="surrogateescape"))
        choices = [line for line in reduced(text.splitlines()) if _CHOSEN in line]
        return choices[-1] if choices else None

    def _text(self, start: int) -> str:
        return os.pread(self.number, MOST_BYTES, start).decode(errors="surrogateescape")

    def remove(self) -> None:
        """Close the file, which goes with that."""
        self._file.close()

    def _nccl_handle(self) -> Optional[int]:
        if self._handle is None:
            wanted = os.fstat(self.number)
            for entry in Path("/proc/self/fd").iterdir():
                number = int(entry.name)
                try:
                    if number != self.number and os.path.samestat(os.fstat(number), wanted):
                        self._handle = number
                except OSError:
                    continue
        return self._handle


def reduced(lines: Iterable[str]) -> List[str]:
    """Lines that tell which way the data goes and what was chosen, each kind once."""
    seen: Set[str] = set()
    kept: List[str] = []
    for line in lines:
        message = _MESSAGE.search(line)
        if message is None or not _PROVES.search(line):
            continue
        text = message.group()[:MOST_CHARS].encode(errors="replace").decode().rstrip()
        key = _VIA.sub("", text, count=1)
        if key not in seen and len(kept) < MOST_LINES:
            seen.add(key)
            kept.append(text)
    return kept
