"""The host's memory, its /dev/shm, and the errors that its memory controllers counted."""

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output, output_unless_missing, rows, whole
from nodectl.facts.disk import SHM, shm
from nodectl.model.facts import Memory
from nodectl.model.recording import Command, Recording
from nodectl.model.system import MemoryController, MemoryErrors
from nodectl.parsers.linux.proc_meminfo import parse_meminfo

_EDAC = """\
cd /sys/devices/system/edac/mc 2>/dev/null || exit 3
for mc in mc[0-9]*; do
  [ -d "$mc" ] || exit 3
  ce= ue= kind= size=
  read -r ce <"$mc/ce_count"; read -r ue <"$mc/ue_count"
  read -r kind <"$mc/mc_name"; read -r size <"$mc/size_mb"
  printf '%s\\tcorrected=%s\\tuncorrected=%s\\tsize_mib=%s\\tkind=%s\\n' "$mc" "$ce" "$ue" "$size" "$kind"
done 2>/dev/null
"""


def _read(recording: Recording) -> Memory:
    mib = parse_meminfo(output(recording, "meminfo"))
    shared = shm(recording)
    return Memory(
        mib["MemTotal"],
        mib.get("MemAvailable"),
        mib.get("SwapTotal"),
        None if shared is None else shared.size_mib,
        mib.get("SwapFree"),
        None if shared is None else shared.free_mib,
        mib.get("Hugetlb"),
    )


def _errors(recording: Recording) -> MemoryErrors:
    text = output_unless_missing(recording, "memory-errors", "the kernel has no EDAC driver for this memory")
    return MemoryErrors(tuple(_controller(cells, named) for cells, named in rows(text)))


def _controller(cells: list[str], named: dict[str, str]) -> MemoryController:
    corrected, uncorrected = whole(named.get("corrected")), whole(named.get("uncorrected"))
    if not cells or corrected is None or uncorrected is None:
        raise ParseError(f"memory-errors: {cells!r} {named!r} has no counts")
    return MemoryController(cells[0], corrected, uncorrected, named.get("kind"), whole(named.get("size_mib")))


FACT = Fact("memory", lambda venv: (Command("meminfo", ("cat", "/proc/meminfo"), hardware=True), SHM), _read)
ERRORS = Fact("memory_errors", lambda venv: (Command("memory-errors", ("sh", "-c", _EDAC), hardware=True),), _errors)
