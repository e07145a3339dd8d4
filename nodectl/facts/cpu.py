"""The host's processors: model, sockets, cores, threads, clock, NUMA nodes, hypervisor."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import counts, text_fact
from nodectl.model.recording import Command


@dataclass(frozen=True, slots=True)
class Cpu:
    """Cores and threads are of the whole host."""

    model: str | None
    architecture: str | None
    sockets: int | None
    cores: int | None
    threads: int
    numa_nodes: int | None
    vendor: str | None = None
    threads_per_core: int | None = None
    mhz_max: float | None = None
    online: str | None = None
    hypervisor: str | None = None


def cpu_set(text: str) -> frozenset[int]:
    """The CPUs of a kernel's list such as `0-3,8`; empty for an empty text."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def parse_lscpu(text: str) -> Cpu:
    """`lscpu` in the C locale; ParseError where the number of CPUs is missing or a count is no number."""
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

    threads, mhz = count("CPU(s)"), text_of("CPU max MHz")
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
        threads_per_core=count("Thread(s) per core"),
        mhz_max=float(mhz) if mhz and re.fullmatch(r"\d+(\.\d+)?", mhz) else None,
        online=text_of("On-line CPU(s) list"),
        hypervisor=text_of("Hypervisor vendor"),
    )


def _words(cpu: Cpu) -> str:
    numbers = {"socket": cpu.sockets, "core": cpu.cores, "thread": cpu.threads, "NUMA node": cpu.numa_nodes}
    return f"{cpu.model or 'model not named'}, {counts(**numbers)}"


FACT = text_fact("cpu", Command("lscpu", ("lscpu",), hardware=True), parse_lscpu, _words, row=100)
