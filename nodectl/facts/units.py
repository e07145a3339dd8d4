"""systemd's units and what it gives them, and what Slurm says of the node."""

import re

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, entry, output, output_unless_missing, whole
from nodectl.model.recording import Command, Recording
from nodectl.model.system import SlurmNode, Unit, UnitLimits, Units

NO_SYSTEMD = "no systemd runs there"
# what training depends on, or what comes in its way
UNITS = (
    *("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nvidia-imex", "openibd", "slurmd", "munge"),
    *("chrony", "chronyd", "ntpd", "systemd-timesyncd", "ssh", "sshd", "irqbalance", "tuned", "docker", "containerd"),
    "unattended-upgrades",
)
_PROPERTIES = "Id,LoadState,ActiveState,SubState,UnitFileState,Result"
_UNITS = f"""\
[ -d /run/systemd/system ] || exit 3
printf 'system %s\\n' "$(systemctl is-system-running)"
systemctl list-units --state=failed --plain --no-legend --no-pager | while read -r unit _; do
  printf 'failed %s\\n' "$unit"
done
systemctl show --no-pager --property={_PROPERTIES} -- "$@"
"""
_LIMIT_NAMES = ("MEMLOCK", "NOFILE", "STACK", "NPROC")
_DEFAULTS = ",".join([*(f"DefaultLimit{name}Soft" for name in _LIMIT_NAMES), "DefaultTasksMax"])
_LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC"
_LIMITS = f"""\
[ -d /run/systemd/system ] || exit 3
systemctl show --no-pager --property={_DEFAULTS}
printf 'RemoveIPC=%s\\n' "$(busctl get-property {_LOGIND} 2>/dev/null)"
"""
_SLURM = """\
command -v scontrol >/dev/null || exit 127
name=$(uname -n)
exec scontrol --oneliner show node "${SLURMD_NODENAME:-${name%%.*}}"
"""
_FIELD = re.compile(r"(?:^|(?<=\s))([A-Za-z]+)=(.*?)(?=\s+[A-Za-z]+=|\s*$)")


def _units(recording: Recording) -> Units:
    text = output_unless_missing(recording, "units", NO_SYSTEMD)
    system, failed, blocks = "", [], []
    block: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        word, _, rest = line.partition(" ")
        name, equals, value = line.partition("=")
        if word == "system":
            system = rest
        elif word == "failed":
            failed.append(rest)
        elif not line.strip():
            blocks.append(block)
            block = {}
        elif equals:
            block[name] = value
        else:
            raise ParseError(f"units: line {number}: {line[:200]!r}")
    units = [_unit(each) for each in [*blocks, block] if "Id" in each]
    return Units(system, {each.name: each for each in units}, tuple(failed))


def _unit(block: dict[str, str]) -> Unit:
    name = block["Id"].removesuffix(".service")
    words = (block.get(key, "") for key in ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result"))
    return Unit(name, *words)


def _limits(recording: Recording) -> UnitLimits:
    text = output_unless_missing(recording, "unit-limits", NO_SYSTEMD)
    named = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    memlock, nofile, stack, nproc = (named.get(f"DefaultLimit{name}Soft") or None for name in _LIMIT_NAMES)
    if memlock is None and nofile is None:
        raise UnknownError("unit-limits: systemd names no limit")
    remove_ipc = {"b true": True, "b false": False}.get(named.get("RemoveIPC", ""))
    return UnitLimits(memlock, nofile, stack, nproc, named.get("DefaultTasksMax") or None, remove_ipc)


def _slurm(recording: Recording) -> SlurmNode:
    found = entry(recording, "slurm-node")
    said = (found.stdout + found.stderr).strip()
    if found.exit_status == 1 and "not found" in said:
        raise AbsentError(f"Slurm's controller does not know this node: {said.splitlines()[0]}")
    text = output(recording, "slurm-node")
    named = {match[1]: match[2].strip() for match in _FIELD.finditer(" ".join(text.split()))}
    if "NodeName" not in named or "State" not in named:
        raise ParseError(f"scontrol: {text[:200]!r} names no node with a state")
    parts = named["State"].split("+")
    states = tuple(part.rstrip("*~#!%$@^-") for part in parts)
    return SlurmNode(
        name=named["NodeName"],
        states=states,
        responding=not any("*" in part for part in parts) and "NOT_RESPONDING" not in states,
        reason=named.get("Reason") or None,
        cpus=_count(named.get("CPUTot")),
        memory_mib=_count(named.get("RealMemory")),
        gres=None if named.get("Gres") in (None, "(null)") else named["Gres"],
        version=named.get("Version") or None,
    )


def _count(text: str | None) -> int | None:
    return whole(text)


FACT = Fact(
    "units",
    lambda venv: (
        Command("units", ("sh", "-c", _UNITS, "units", *(f"{name}.service" for name in UNITS)), hardware=True),
    ),
    _units,
)
LIMITS = Fact("unit_limits", lambda venv: (Command("unit-limits", ("sh", "-c", _LIMITS), hardware=True),), _limits)
SLURM = Fact("slurm", lambda venv: (Command("slurm-node", ("sh", "-c", _SLURM), hardware=True),), _slurm)
