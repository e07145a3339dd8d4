"""Processors and memory: sockets, cores, NUMA nodes, sizes, and what the memory controllers counted."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, counts, entry, gib, matches, output, rows, script, text_fact, whole
from nodectl.facts.storage import parse_df
from nodectl.model.recording import Command, Recording


@dataclass(frozen=True, slots=True)
class Cpu:
    """The host's processors: model, sockets, clock, NUMA nodes, hypervisor; cores and threads of the whole host."""

    model: str | None
    architecture: str | None
    sockets: int | None
    cores: int | None
    threads: int
    numa_nodes: int | None
    vendor: str | None = None
    online: str | None = None
    hypervisor: str | None = None


def cpu_set(text: str) -> frozenset[int]:
    """Return the CPUs of a kernel's list such as `0-3,8`; empty for an empty text."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def parse_lscpu(text: str) -> Cpu:
    """`lscpu` in the C locale; ParseError if the number of CPUs is missing or a count is no number."""
    fields: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), (number, value.strip()))

    def count(key: str) -> int | None:
        number, value = fields.get(key, (0, "-"))
        if value in ("-", ""):
            return None
        try:
            return int(value)
        except ValueError as error:
            raise ParseError(f"lscpu line {number}: {key}: {value!r} is no number") from error

    def text_of(key: str) -> str | None:
        return fields.get(key, (0, ""))[1] or None

    threads = count("CPU(s)")
    if threads is None:
        raise ParseError("lscpu names no 'CPU(s)'" if text.strip() else "lscpu printed nothing")
    sockets, per_socket = count("Socket(s)"), count("Core(s) per socket")
    return Cpu(
        model=fields.get("Model name", (0, None))[1],
        architecture=fields.get("Architecture", (0, None))[1],
        sockets=sockets,
        cores=sockets * per_socket if sockets and per_socket else None,
        threads=threads,
        numa_nodes=count("NUMA node(s)"),
        vendor=text_of("Vendor ID"),
        online=text_of("On-line CPU(s) list"),
        hypervisor=text_of("Hypervisor vendor"),
    )


def _cpu_words(cpu: Cpu) -> str:
    numbers = {"socket": cpu.sockets, "core": cpu.cores, "thread": cpu.threads, "NUMA node": cpu.numa_nodes}
    return f"{cpu.model or 'model not named'}, {counts(**numbers)}"


CPU_FACT = text_fact("cpu", Command("lscpu", ("lscpu",), hardware=True), parse_lscpu, _cpu_words, row=100)


# FILE:LINE as grep prints it: the shell would read byte by byte, which not every kernel answers
_NUMA_SHOW = """\
cd /sys/devices/system/node 2>/dev/null || exit 3
exec grep -sHE '^[0-9, -]*$|MemTotal|MemFree' node[0-9]*/cpulist node[0-9]*/meminfo
"""
# recordings of earlier versions have the distances, too
_LINE = re.compile(r"node(\d+)/(cpulist|distance|meminfo):(?:Node \d+ (Mem\w+):)?\s*(.*)")


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One node; `cpus` as the kernel writes lists: 0-7,64-71."""

    node: int
    cpus: str
    memory_mib: int | None
    free_mib: int | None


@dataclass(frozen=True, slots=True)
class Numa:
    """The host's NUMA nodes: processors and memory."""

    nodes: tuple[NumaNode, ...]


def _parse_numa(text: str) -> Numa:
    nodes: dict[int, dict[str, str]] = {}
    for match in matches(_LINE, text, "numa"):
        nodes.setdefault(int(match[1]), {})[match[3] or match[2]] = match[4].strip().removesuffix(" kB")
    if not nodes:
        raise ParseError("numa: no node is named")

    def mib(node: dict[str, str], name: str) -> int | None:
        kib = whole(node.get(name))
        return None if kib is None else kib // 1024

    return Numa(
        tuple(
            NumaNode(number, node.get("cpulist", ""), mib(node, "MemTotal"), mib(node, "MemFree"))
            for number, node in sorted(nodes.items())
        )
    )


NUMA_FACT = text_fact(
    "numa",
    script("numa", _NUMA_SHOW, hardware=True),
    _parse_numa,
    lambda numa: "; ".join(f"{node.node}: {node.cpus or 'no CPU'}, {gib(node.memory_mib)}" for node in numa.nodes),
    absent="the kernel knows no NUMA nodes",
    row=110,
)


_SHM_MOUNT = "/dev/shm"  # noqa: S108 - read, never written
_SHM = Command("df-shm", ("df", "-kP", _SHM_MOUNT))


@dataclass(frozen=True, slots=True)
class Memory:
    """The host's memory, swap and huge pages, and the size of its /dev/shm, None if that is no file system."""

    total_mib: int
    available_mib: int | None
    swap_mib: int | None
    shm_mib: int | None
    swap_free_mib: int | None = None
    shm_free_mib: int | None = None
    huge_pages_mib: int | None = None

    @property
    def installed_gib(self) -> int:
        """Return the modules' GiB: firmware and kernel keep a little, and modules come in steps of 16 GiB."""
        return -(-self.total_mib // (16 * 1024)) * 16


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo: MiB (2^20 bytes) by field name; fields without a unit are counts and left out."""
    values_mib: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        key, colon, rest = line.partition(":")
        parts = rest.split()
        if not colon or not parts or not parts[0].isdigit():
            raise ParseError(f"/proc/meminfo line {number}: {line!r}")
        if parts[1:] == ["kB"]:
            values_mib[key] = int(parts[0]) // 1024
    if "MemTotal" not in values_mib:
        raise ParseError("/proc/meminfo names no MemTotal")
    return values_mib


def _read_memory(recording: Recording) -> Memory:
    mib = parse_meminfo(output(recording, "meminfo"))
    done = entry(recording, _SHM.key)
    table = parse_df(done.stdout) if done.exit_status == 0 else ()
    # df shows the file system above /dev/shm if it is none of its own
    shared = next(((row.size_mib, row.free_mib) for row in table if row.mount == _SHM_MOUNT), (None, None))
    return Memory(
        mib["MemTotal"],
        mib.get("MemAvailable"),
        mib.get("SwapTotal"),
        shared[0],
        mib.get("SwapFree"),
        shared[1],
        mib.get("Hugetlb"),
    )


MEMORY_FACT = Fact(
    "memory",
    (Command("meminfo", ("cat", "/proc/meminfo"), hardware=True), _SHM),
    _read_memory,
    lambda memory: f"{gib(memory.total_mib)}, swap {gib(memory.swap_mib)}, /dev/shm {gib(memory.shm_mib)}",
    row=120,
)


@dataclass(frozen=True, slots=True)
class MemoryController:
    """Errors that a memory controller counted since boot: corrected and uncorrected."""

    name: str
    corrected: int
    uncorrected: int
    kind: str | None = None
    size_mib: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """Errors that the memory controllers counted since boot (EDAC); none if the kernel has no driver for them."""

    controllers: tuple[MemoryController, ...]


def _controller(cells: list[str], named: dict[str, str]) -> MemoryController:
    corrected, uncorrected = whole(named.get("corrected")), whole(named.get("uncorrected"))
    if not cells or corrected is None or uncorrected is None:
        raise ParseError(f"memory-errors: {cells!r} {named!r} has no counts")
    return MemoryController(cells[0], corrected, uncorrected, named.get("kind"), whole(named.get("size_mib")))


def _memory_errors_words(errors: MemoryErrors) -> str:
    bad = [mc for mc in errors.controllers if mc.corrected or mc.uncorrected]
    lines = (f"{mc.name} {mc.corrected} corrected, {mc.uncorrected} not" for mc in bad)
    return "; ".join(lines) or f"none on {len(errors.controllers)} controllers"


MEMORY_ERRORS_FACT = text_fact(
    "memory_errors",
    script("memory-errors", hardware=True),
    lambda text: MemoryErrors(tuple(_controller(cells, named) for cells, named in rows(text))),
    _memory_errors_words,
    absent="the kernel has no EDAC driver for this memory",
    row=130,
)
