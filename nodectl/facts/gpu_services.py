"""NVIDIA's services beside the driver: DCGM's watches and last diagnostic, NVSwitch's fabric manager and its log."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry, output, parse, read_fact, script
from nodectl.facts.parsers.nvidia.fabricmanager_log import FabricManagerLog, parse_fabricmanager_log
from nodectl.facts.services import UNITS_COMMAND, UNITS_FACT, Units
from nodectl.model.recording import Command, Recording

_DCGM_HEALTH_COMMAND = Command("dcgm-health", ("dcgmi", "health", "--check"), deadline_s=15, hardware=True)
# `| Overall Health | Healthy |`, and of older releases `| Group 1 | Overall Health: Healthy |`
_OVERALL = re.compile(r"\|[ \t]*Overall Health(?::|[ \t]*\|)[ \t]*(\w+)", re.IGNORECASE)
_DCGM_HEALTH_ROW = re.compile(r"\|[ \t]*(?P<left>[^|\n]*?)[ \t]*\|[ \t]*(?P<right>[^|\n]*?)[ \t]*\|")
_WORD = ("Warning", "Failure", "Fail", "Healthy", "Pass")
_NOT_WATCHED = ("health watches not enabled", "no health watches", "not currently watched")
NO_ENGINE = ("unable to establish a connection", "host engine is not running", "connection to the host engine")


@dataclass(frozen=True, slots=True)
class DcgmHealth:
    """DCGM's own watches (`dcgmi health --check`): its word on the whole, and each complaint.

    `overall` is empty if its host engine runs and watches nothing; `complaints` are without headings.
    """

    overall: str
    complaints: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """DCGM has nothing to complain of."""
        return self.overall.lower() in ("healthy", "pass")

    @property
    def failed(self) -> bool:
        """DCGM calls it a failure, not a warning."""
        return self.overall.lower().startswith("fail")


def _read_dcgm_health(recording: Recording) -> DcgmHealth:
    done = entry(recording, _DCGM_HEALTH_COMMAND.key)
    printed = f"{done.stdout}{done.stderr}".lower()
    # both of some releases with exit status 0
    if any(phrase in printed for phrase in NO_ENGINE):
        raise AbsentError("DCGM's host engine does not run")
    if any(phrase in printed for phrase in _NOT_WATCHED):
        return DcgmHealth("", ())
    text = output(recording, _DCGM_HEALTH_COMMAND.key)
    overall = _OVERALL.search(text)
    if overall is None:
        raise ParseError(f"dcgm-health: no overall health in {text[:120]!r}")
    return DcgmHealth(overall[1], tuple(_complaints(text[overall.end() :])))


def _complaints(text: str) -> list[str]:
    """Return the complaints; rows whose left cell is empty go on with the one before."""
    complaints: list[str] = []
    for row in _DCGM_HEALTH_ROW.finditer(text):
        left, right = row["left"].lstrip("-> "), row["right"]
        if not right:
            continue
        if left or not complaints:
            complaints.append(f"{left}: {right}".removeprefix(": "))
        else:
            complaints[-1] += f" {right}"
    return [line for line in complaints if not line.endswith(tuple(f": {word}" for word in _WORD))]


DCGM_HEALTH_FACT = Fact(
    "dcgm_health",
    (_DCGM_HEALTH_COMMAND,),
    _read_dcgm_health,
    lambda health: "; ".join([health.overall or "not watched", *health.complaints]),
    row=165,
    quiet=True,
)


# dcgm_fields.h: DCGM_FI_DEV_DIAG_*_RESULT, by the short names over their columns
_TESTS = {
    "MEMRES": (350, "memory"),
    "DIARES": (351, "diagnostic"),
    "PCIRES": (352, "pcie"),
    "STRRES": (353, "targeted_stress"),
    "POWRES": (354, "targeted_power"),
    "MBWRES": (355, "memory_bandwidth"),
    "MEMTRES": (356, "memtest"),
    "PLSRES": (357, "pulse_test"),
    "EUDRES": (358, "eud"),
    "CPUEUDRES": (359, "cpu_eud"),
    "SWRES": (360, "software"),
    "NVBRES": (361, "nvbandwidth"),
}
_FIELDS = ",".join(str(field) for field, _ in _TESTS.values())
_DCGM_DIAG_COMMAND = Command("dcgm-diag", ("dcgmi", "dmon", "-e", _FIELDS, "-c", "1"), deadline_s=15, hardware=True)
# what dcgmi says of numbers that its release does not have yet
_NO_FIELD = re.compile(r"\bfield", re.IGNORECASE)
_DCGM_DIAG_ROW = re.compile(r"[A-Z][\w-]* \d+\s+(.*)")


@dataclass(frozen=True, slots=True)
class DcgmDiag:
    """How the last `dcgmi diag` of each test ended, as DCGM's host engine remembers it (DCGM 4 and later).

    DCGM's error code by test, 0 if it passed; what did not run since the host engine's start is not here.
    """

    results: Mapping[str, int]


def _read_dcgm_diag(recording: Recording) -> DcgmDiag:
    done = entry(recording, _DCGM_DIAG_COMMAND.key)
    printed = f"{done.stdout}{done.stderr}"
    if any(phrase in printed.lower() for phrase in NO_ENGINE):
        raise AbsentError("DCGM's host engine does not run")
    if done.exit_status != 0 and _NO_FIELD.search(printed):
        raise AbsentError("this release of DCGM does not keep results")
    head, *lines = output(recording, _DCGM_DIAG_COMMAND.key).splitlines() or [""]
    first, *columns = head.split() or [""]
    if first != "#Entity" or not set(columns) <= _TESTS.keys():
        raise ParseError(f"dcgm-diag: {head[:120]!r} is not the head of `dcgmi dmon -e {_FIELDS}`")
    results: dict[str, int] = {}
    for line in lines:
        cells = match[1].split() if (match := _DCGM_DIAG_ROW.fullmatch(line.rstrip())) else []
        if cells and len(cells) != len(columns):
            raise ParseError(
                f"dcgm-diag: {line[:160]!r} has {counted(len(cells), 'value')} under {counted(len(columns), 'name')}"
            )
        for name, cell in zip(columns, cells, strict=False):
            if cell.isdigit():
                # of the whole host, and so the same in each GPU's row
                results[_TESTS[name][1]] = max(int(cell), results.get(_TESTS[name][1], 0))
    return DcgmDiag(results)


DCGM_DIAG_FACT = Fact(
    "dcgm_diag",
    (_DCGM_DIAG_COMMAND,),
    _read_dcgm_diag,
    lambda diag: ", ".join(f"{name} {code or 'passed'}" for name, code in diag.results.items()) or "none ran",
    row=166,
    quiet=True,
)


_MANAGER = Command("fabric-manager", ("nv-fabricmanager", "--version"), hardware=True)


@dataclass(frozen=True, slots=True)
class FabricManager:
    """NVSwitch's fabric manager: its version, and the state of its unit; None without systemd."""

    version: str
    unit_state: str | None = None


def _read_fabric_manager(recording: Recording) -> FabricManager:
    text = output(recording, _MANAGER.key)
    version = re.search(r"(?i)version\s*(?:is)?\s*:?\s*(\d+(?:\.\d+)+)", text)
    if version is None:
        raise ParseError(f"nv-fabricmanager: {text[:200]!r} names no version")
    systemd = read_fact(UNITS_FACT, recording)
    unit = systemd.units.get("nvidia-fabricmanager") if isinstance(systemd, Units) else None
    return FabricManager(version[1], unit.active if unit else None)


FABRIC_MANAGER_FACT = Fact(
    "fabric_manager",
    (_MANAGER, UNITS_COMMAND),
    _read_fabric_manager,
    lambda manager: f"{manager.version}, {manager.unit_state or 'state not known'}",
    row=640,
)


_FABRIC_MANAGER_LOG_COMMAND = script("fabric-manager-log", hardware=True)


def _read_fabric_manager_log(recording: Recording) -> FabricManagerLog:
    text = output(recording, _FABRIC_MANAGER_LOG_COMMAND.key, "fabric manager has no log there")
    # right after a boot there is nothing to read, and nothing to tell
    has_lines = any(line.strip() and not line.startswith("-- ") for line in text.splitlines())
    return parse(parse_fabricmanager_log, text) if has_lines else FabricManagerLog((), 0)


FABRIC_MANAGER_LOG_FACT = Fact(
    "fabric_manager_log",
    (_FABRIC_MANAGER_LOG_COMMAND,),
    _read_fabric_manager_log,
    lambda log: f"{counted(len(log.events), 'complaint')} in {counted(log.lines, 'line')}",
    row=641,
    quiet=True,
    about="What fabric manager has logged since the boot: in its own file, else in the journal.",
)
