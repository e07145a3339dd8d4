"""NVSwitch's fabric manager: its version, and the state of its unit."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts import units
from nodectl.facts.base import Fact, output, read_fact
from nodectl.model.recording import Command, Recording

_MANAGER = Command("fabric-manager", ("nv-fabricmanager", "--version"), hardware=True)


@dataclass(frozen=True, slots=True)
class FabricManager:
    """The installed program's version, and its unit's state; None without systemd."""

    version: str
    unit_state: str | None = None
    unit_enabled: str | None = None


def _read(recording: Recording) -> FabricManager:
    text = output(recording, _MANAGER.key)
    version = re.search(r"(?i)version\s*(?:is)?\s*:?\s*(\d+(?:\.\d+)+)", text)
    if version is None:
        raise ParseError(f"nv-fabricmanager: {text[:200]!r} names no version")
    systemd = read_fact(units.FACT, recording)
    unit = systemd.units.get("nvidia-fabricmanager") if isinstance(systemd, units.Units) else None
    return FabricManager(version[1], unit.active if unit else None, unit.enabled if unit else None)


def _words(manager: FabricManager) -> str:
    return f"{manager.version}, {manager.unit_state or 'state not known'}"


FACT = Fact("fabric_manager", (_MANAGER, units.COMMAND), _read, _words, row=640)
