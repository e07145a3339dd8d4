"""The host's memory, swap and huge pages, and the size of its /dev/shm."""

from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, gib, output
from nodectl.facts.disk import FileSystem, parse_df
from nodectl.model.recording import Command, Recording

_SHM_MOUNT = "/dev/shm"  # noqa: S108 - read, never written
_SHM = Command("df-shm", ("df", "-kP", _SHM_MOUNT))


@dataclass(frozen=True, slots=True)
class Memory:
    """`shm_mib` is the size of /dev/shm, None where it is no file system of its own."""

    total_mib: int
    available_mib: int | None
    swap_mib: int | None
    shm_mib: int | None
    swap_free_mib: int | None = None
    shm_free_mib: int | None = None
    huge_pages_mib: int | None = None

    @property
    def installed_gib(self) -> int:
        """What the modules hold: the firmware and the kernel keep a little, and modules come in steps of 16 GiB."""
        return -(-self.total_mib // (16 * 1024)) * 16


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo: MiB (2^20 bytes) by field name; fields without a unit are counts and left out."""
    values_mib: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, rest = line.partition(":")
        words = rest.split()
        if not colon or not words or not words[0].isdigit():
            raise ParseError(f"/proc/meminfo line {number}: {line!r}")
        if words[1:] == ["kB"]:
            values_mib[key] = int(words[0]) // 1024
    if "MemTotal" not in values_mib:
        raise ParseError("/proc/meminfo names no MemTotal")
    return values_mib


def _read(recording: Recording) -> Memory:
    mib = parse_meminfo(output(recording, "meminfo"))
    shared = _shared(recording)
    return Memory(
        mib["MemTotal"],
        mib.get("MemAvailable"),
        mib.get("SwapTotal"),
        None if shared is None else shared.size_mib,
        mib.get("SwapFree"),
        None if shared is None else shared.free_mib,
        mib.get("Hugetlb"),
    )


def _shared(recording: Recording) -> FileSystem | None:
    """The file system of /dev/shm; df shows the one above it where it has none of its own."""
    done = entry(recording, _SHM.key)
    table = parse_df(done.stdout) if done.exit_status == 0 else ()
    return next((row for row in table if row.mount == _SHM_MOUNT), None)


def _words(memory: Memory) -> str:
    return f"{gib(memory.total_mib)}, swap {gib(memory.swap_mib)}, /dev/shm {gib(memory.shm_mib)}"


FACT = Fact("memory", (Command("meminfo", ("cat", "/proc/meminfo"), hardware=True), _SHM), _read, _words, row=120)
