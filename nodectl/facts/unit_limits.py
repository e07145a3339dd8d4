"""The limits that systemd gives a unit by default, and logind's RemoveIPC."""

from dataclasses import dataclass

from nodectl.facts.base import UnknownError, or_unknown, script, text_fact
from nodectl.facts.units import NO_SYSTEMD

_NAMES = ("MEMLOCK", "NOFILE", "STACK", "NPROC")
_DEFAULTS = ",".join([*(f"DefaultLimit{name}Soft" for name in _NAMES), "DefaultTasksMax"])
_LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC"
_SHOW = f"""\
[ -d /run/systemd/system ] || exit 3
systemctl show --no-pager --property={_DEFAULTS}
printf 'RemoveIPC=%s\\n' "$(busctl get-property {_LOGIND} 2>/dev/null)"
"""


@dataclass(frozen=True, slots=True)
class UnitLimits:
    """Hold what systemd gives a unit by default, in bytes and files or `infinity`; `remove_ipc` is logind's."""

    memlock: str | None = None
    nofile: str | None = None
    stack: str | None = None
    nproc: str | None = None
    tasks_max: str | None = None
    remove_ipc: bool | None = None


def _parse(text: str) -> UnitLimits:
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    memlock, nofile, stack, nproc = (values.get(f"DefaultLimit{name}Soft") or None for name in _NAMES)
    if memlock is None and nofile is None:
        raise UnknownError("unit-limits: systemd names no limit")
    remove_ipc = {"b true": True, "b false": False}.get(values.get("RemoveIPC", ""))
    return UnitLimits(memlock, nofile, stack, nproc, values.get("DefaultTasksMax") or None, remove_ipc)


def _words(limits: UnitLimits) -> str:
    values = {"memlock": limits.memlock, "nofile": limits.nofile, "stack": limits.stack}
    shown = ", ".join(f"{name} {or_unknown(value)}" for name, value in values.items())
    return f"unit: {shown}{', RemoveIPC on' if limits.remove_ipc else ''}"


FACT = text_fact(
    "unit_limits", script("unit-limits", _SHOW, hardware=True, waits=True), _parse, _words, absent=NO_SYSTEMD, row=420
)
