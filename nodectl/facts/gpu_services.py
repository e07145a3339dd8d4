"""NVIDIA's services beside the driver: DCGM's watches, and NVSwitch's fabric manager."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry, output, read_fact
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
