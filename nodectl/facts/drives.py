"""What drives say of their own health: NVMe's health log and SMART, by smartctl, or by nvme where that is not there."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.common import bounded_json
from nodectl.facts.base import SUDOERS, AbsentError, Fact, UnknownError, entry, output
from nodectl.model.recording import Command, Recording

# no serial number is asked for; a disk that sleeps is not woken
_SMARTCTL = ("smartctl", "-j", "-n", "standby", "-H", "-A")
_NVME = ("nvme", "smart-log", "-o", "json")
_NVMES, _DISKS = ("/dev/nvme[0-9]", "/dev/nvme[0-9][0-9]"), ("/dev/sd[a-z]", "/dev/sd[a-z][a-z]")
# `drive FILE` before what the tool says of it
_SHOW = f"""\
smartctl=$(command -v smartctl) || command -v nvme >/dev/null || exit 3
for drive in {" ".join((*_NVMES, *_DISKS))}; do
  [ -e "$drive" ] || continue
  if [ -n "$smartctl" ]; then
    set -- {" ".join(_SMARTCTL)} "$drive"
  else
    case $drive in /dev/sd*) continue ;; esac
    set -- {" ".join(_NVME)} "$drive"
  fi
  [ -r "$drive" ] || set -- sudo -n -- "$@"
  printf 'drive %s\\n' "$drive"
  "$@"
done
exit 0
"""
_COMMAND = Command(
    "drives",
    ("sh", "-c", _SHOW),
    deadline_s=20,
    hardware=True,
    sudo=(*((*_SMARTCTL, each) for each in (*_NVMES, *_DISKS)), *((*_NVME, each) for each in _NVMES)),
)
_DRIVE = re.compile(r"^drive (/dev/\S{1,40})$", re.MULTILINE)
_DENIED = re.compile("Permission denied|Operation not permitted")
# ATA attributes of sectors that could not be read: Current_Pending_Sector, Offline_Uncorrectable
_UNREADABLE = (197, 198)


@dataclass(frozen=True, slots=True)
class Drive:
    """One drive; None for what its kind does not tell.

    `passed` is its own verdict, `critical_warning` NVMe's bits, `used_percent` how much is used of the life that its
    maker gives it, `failed_attributes` those of ATA that are beyond their limit now, `media_errors` what was lost since
    it was made, `unreadable_sectors` what it cannot read now.
    """

    name: str
    passed: bool | None = None
    critical_warning: int | None = None
    spare_percent: int | None = None
    used_percent: int | None = None
    media_errors: int | None = None
    unreadable_sectors: int | None = None
    failed_attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drives:
    """Hold those that tell something; `silent` did not answer, or not in a form that is known."""

    drives: tuple[Drive, ...]
    silent: tuple[str, ...] = ()


def _read(recording: Recording) -> Drives:
    text = output(recording, _COMMAND.key, "neither smartctl nor nvme is installed")
    _, *parts = _DRIVE.split(text)
    if not parts:
        raise AbsentError("the host has no drive of its own")
    complaint = entry(recording, _COMMAND.key).stderr
    if not any(said.strip() for said in parts[1::2]):
        needs_root = "sudo" in complaint
        reason = f"needs root, and sudo wants a password: {SUDOERS}" if needs_root else complaint.strip()[:200]
        raise UnknownError(f"smartctl: {reason or 'it says nothing'}")
    drives, silent = [], []
    for name, said in zip(parts[::2], parts[1::2], strict=True):
        try:
            document = bounded_json.loads(said)
            if _DENIED.search(str(document.get("smartctl", ""))):
                raise ValueError(name)
            drives.append(_drive(name, document))
        except (ValueError, AttributeError, TypeError, KeyError):
            silent.append(name)
    return Drives(tuple(drive for drive in drives if drive != Drive(drive.name)), tuple(silent))


def _drive(name: str, said: Mapping[str, Any]) -> Drive:
    """Return it as smartctl or nvme has it; a virtual disk says nothing of its health."""
    log = said.get("nvme_smart_health_information_log") or (said if "critical_warning" in said else {})
    attributes = said.get("ata_smart_attributes", {}).get("table", [])
    warning = log.get("critical_warning")
    return Drive(
        name,
        passed=said.get("smart_status", {}).get("passed"),
        # nvme -v says each bit by its name besides
        critical_warning=_whole(warning.get("value") if isinstance(warning, dict) else warning),
        spare_percent=_whole(log.get("available_spare", log.get("avail_spare"))),
        used_percent=_whole(log.get("percentage_used", log.get("percent_used"))),
        media_errors=_media_errors(said, log),
        unreadable_sectors=sum(_unreadable(attributes)) if attributes else None,
        failed_attributes=tuple(str(each["name"]) for each in attributes if each.get("when_failed") == "now"),
    )


def _whole(value: object) -> int | None:
    """nvme writes a number that is large as text."""
    return None if value is None else int(str(value))


def _unreadable(attributes: list[dict[str, Any]]) -> Iterator[int]:
    return (int(each["raw"]["value"]) for each in attributes if each.get("id") in _UNREADABLE)


def _media_errors(said: Mapping[str, Any], log: Mapping[str, Any]) -> int | None:
    """NVMe's, or what SCSI counts as not corrected."""
    if "media_errors" in log:
        return _whole(log["media_errors"])
    counters = said.get("scsi_error_counter_log")
    return sum(int(each.get("total_uncorrected_errors", 0)) for each in counters.values()) if counters else None


def _words(drives: Drives) -> str:
    used = max((drive.used_percent for drive in drives.drives if drive.used_percent is not None), default=None)
    return f"{len(drives.drives)} drives" + ("" if used is None else f", at most {used} % of their life used")


FACT = Fact("drives", (_COMMAND,), _read, _words, row=817, quiet=True)
