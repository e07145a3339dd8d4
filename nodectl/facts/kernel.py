"""The kernel: release, boot, modules, what its log tells of hardware, settings that are no sysctl."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.base import (
    AbsentError,
    Fact,
    UnknownError,
    ends_within_line,
    entry,
    is_flood,
    listed,
    or_unknown,
    output,
    output_of_root,
    parse,
    script,
    text_fact,
    whole,
    whole_lines,
)
from nodectl.facts.parsers.linux.dmesg import Dmesg, parse_dmesg
from nodectl.model.recording import Command, Recording

_UNAME = Command("uname", ("uname", "-srm"), hardware=True)
_OS_RELEASE = Command("os-release", ("cat", "/etc/os-release"), hardware=True)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The running kernel and its distribution."""

    name: str
    release: str
    architecture: str
    os_id: str | None
    os_version: str | None
    os_name: str | None

    @property
    def is_wsl(self) -> bool:
        """Return whether it is Microsoft's, below Windows: `5.15.167.4-microsoft-standard-WSL2`."""
        return "microsoft" in self.release.lower()


@lru_cache(maxsize=4)
def parse_os_release(text: str) -> dict[str, str]:
    """Return the variables of /etc/os-release, whose values are quoted as in a shell."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        try:
            parts = shlex.split(value)
        except ValueError as error:
            raise ParseError(f"os-release line {number}: {line!r}: {error}") from error
        if not equals:
            raise ParseError(f"os-release line {number}: {line!r}")
        values[name.strip()] = parts[0] if parts else ""
    return values


def _read_kernel(recording: Recording) -> Kernel:
    parts = output(recording, "uname").split()
    if len(parts) != 3:
        raise ParseError(f"uname line 1: {' '.join(parts)!r}")
    try:
        release = parse_os_release(entry(recording, "os-release").stdout)
    except (AbsentError, UnknownError, ParseError):
        release = {}  # the kernel is known without its distribution
    name, version, architecture = parts
    return Kernel(name, version, architecture, release.get("ID"), release.get("VERSION_ID"), release.get("PRETTY_NAME"))


KERNEL_FACT = Fact(
    "kernel",
    (_UNAME, _OS_RELEASE),
    _read_kernel,
    lambda kernel: f"{kernel.os_name or kernel.os_id or 'no os-release'}, {kernel.name} {kernel.release}",
    row=300,
)


_BOOT_COMMAND = Command("boot", ("cat", "/proc/sys/kernel/random/boot_id", "/proc/uptime"), hardware=True)
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Boot:
    """The running boot: its id, by which two readings are known to be of the same one, and the uptime."""

    boot_id: str
    uptime_s: float


def _parse_boot(text: str) -> Boot:
    parts = text.split()
    try:
        boot_id, uptime, _ = parts
        uptime_s = float(uptime)
    except ValueError as error:
        raise ParseError(
            f"boot: {' '.join(parts)!r}: the output is cut: a boot's id and two numbers of seconds were expected"
        ) from error
    return Boot(boot_id, uptime_s)


BOOT_FACT = text_fact("boot", _BOOT_COMMAND, _parse_boot, lambda boot: f"up {boot.uptime_s / _HOUR_S:.0f} h", row=310)


_OF_TRAINING = {"nvidia", "nvidia_uvm", "nvidia_peermem", "nouveau", "mlx5_ib", "ib_uverbs", "rdma_rxe", "gdrdrv"}

# its name, its bytes, and how many use it (a dash if the kernel cannot unload modules)
_ROW = re.compile(r"([\w-]+) \d+ (?:\d+|-)(?: |$)")


@dataclass(frozen=True, slots=True)
class Modules:
    """The kernel's loaded modules by name."""

    loaded: tuple[str, ...]


def _parse_modules(text: str) -> Modules:
    names = []
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _ROW.match(line):
            names.append(match[1].replace("-", "_"))
        elif line.strip():  # a module that stands in no line counts as not loaded
            raise ParseError(f"/proc/modules line {number}: {line[:120]!r}")
    return Modules(tuple(sorted(names)))


MODULES_FACT = text_fact(
    "modules",
    Command("modules", ("cat", "/proc/modules"), hardware=True),
    _parse_modules,
    lambda modules: f"{len(modules.loaded)} loaded, of these: {listed(_OF_TRAINING.intersection(modules.loaded))}",
    row=330,
)


# raw: only so does a line say whether the kernel wrote it, or a program
DMESG = Command("dmesg", ("dmesg", "-r"), deadline_s=20, hardware=True, root=True, newest=True)
# programs write with another facility than the kernel's 0
_OF_KERNEL = re.compile(r"^<[0-7]>|\A(?!(?s:.*)^<\d)(?s:.*?)^\S", re.MULTILINE)


def _read_kernel_events(recording: Recording) -> Dmesg:
    done = recording.entries.get(DMESG.key)
    # a recording holds as much as it may: what it has tells of a lost GPU all the same
    is_part = done is not None and (
        (done.cut and done.exit_status is None and not is_flood(done))
        or (done.exit_status == 0 and ends_within_line(done.stdout))
    )
    text = (
        whole_lines(done.stdout) if done is not None and is_part and done.stdout else output_of_root(recording, DMESG)
    )
    if not _OF_KERNEL.search(text):  # nothing was looked at: that is not a log without errors
        raise ParseError(
            "the kernel's log is empty, but for what programs wrote: it was cleared, or is kept from this host"
        )
    return replace(parse(parse_dmesg, text), is_part=is_part)


def _kernel_events_words(log: Dmesg) -> str:
    kinds = Counter(event.kind for event in log.events)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no event of note"


KERNEL_EVENTS_FACT = Fact(
    "kernel_events",
    (DMESG,),
    _read_kernel_events,
    _kernel_events_words,
    row=710,
    about="The kernel's log of this boot: errors of GPUs, links and memory.",
)


_COUNTS = {"numa_balancing", "iommu_groups", "taint"}
_CHOICES = {"transparent_hugepage", "transparent_hugepage_defrag"}


@dataclass(frozen=True, slots=True)
class KernelKnobs:
    """Kernel settings that are no sysctl: huge pages, CPUs by governor, SMT, IOMMU, taint, command line."""

    cmdline: str | None = None
    transparent_hugepage: str | None = None
    transparent_hugepage_defrag: str | None = None
    governors: Mapping[str, int] = field(default_factory=dict)
    frequency_driver: str | None = None
    numa_balancing: int | None = None
    smt: str | None = None
    idle_driver: str | None = None
    clocksource: str | None = None
    iommu_groups: int | None = None
    taint: int | None = None
    tuned_profile: str | None = None


def _parse_kernel_knobs(text: str) -> KernelKnobs:
    values: dict[str, str] = {}
    governors: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        if name == "governor":
            governor, _, cpus = value.partition("\t")
            if not cpus.isdigit():
                raise ParseError(f"kernel-knobs: {line!r} counts no CPUs")
            governors[governor] = governors.get(governor, 0) + int(cpus)
        else:
            values[name] = value.strip()
    if not values:
        raise UnknownError("kernel-knobs: nothing was shown")
    typed: dict[str, Any] = {name: values[name] for name in values.keys() & set(KernelKnobs.__slots__)}
    typed |= {name: whole(typed[name]) for name in typed.keys() & _COUNTS}
    chosen = {name: typed[name].partition("[")[2].partition("]")[0] for name in typed.keys() & _CHOICES}
    return KernelKnobs(governors=governors, **typed | {name: word for name, word in chosen.items() if word})


def _kernel_knobs_words(knobs: KernelKnobs) -> str:
    governors = ", ".join(sorted(knobs.governors)) or "no governor"
    pages = f"huge pages {knobs.transparent_hugepage or '?'}"
    return f"{governors}, {pages}, NUMA balancing {or_unknown(knobs.numa_balancing)}"


KERNEL_KNOBS_FACT = text_fact(
    "kernel_knobs",
    script("kernel-knobs", hardware=True),
    _parse_kernel_knobs,
    _kernel_knobs_words,
    row=320,
)
