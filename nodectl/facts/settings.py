"""Settings that the tuning makes: sysctls now and at the next boot, limits of sessions, of logins and of units."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodectl.common.counting import counted
from nodectl.common.resources import node_module
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, UnknownError, entry, or_unknown, output, script, shell, text_fact, whole
from nodectl.facts.services import NO_SYSTEMD
from nodectl.model.recording import Command, Recording

# what a training node's network and memory depend on: always looked at, so that hosts can be compared
SYSCTL_KEYS = (
    *("net.core.rmem_max", "net.core.wmem_max", "net.core.rmem_default", "net.core.wmem_default"),
    *("net.core.netdev_max_backlog", "net.core.somaxconn", "net.core.default_qdisc", "net.core.busy_poll"),
    *("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_mem", "net.ipv4.tcp_congestion_control"),
    *("net.ipv4.tcp_mtu_probing", "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_window_scaling"),
    *("net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack"),
    *("net.ipv4.ip_local_port_range", "net.ipv4.conf.all.rp_filter", "net.ipv4.conf.all.arp_ignore"),
    *(f"net.ipv4.neigh.default.gc_thresh{n}" for n in (1, 2, 3)),
    *("vm.swappiness", "vm.zone_reclaim_mode", "vm.overcommit_memory", "vm.max_map_count", "vm.min_free_kbytes"),
    *("vm.dirty_ratio", "vm.dirty_background_ratio", "vm.nr_hugepages"),
    *("kernel.numa_balancing", "kernel.pid_max", "kernel.threads-max", "kernel.shmmax", "kernel.panic_on_oops"),
    *("fs.file-max", "fs.nr_open", "fs.inotify.max_user_watches", "fs.inotify.max_user_instances", "fs.aio-max-nr"),
)


@dataclass(frozen=True, slots=True)
class Sysctl:
    """One kernel setting; `value` None if there is none, `fixed`: why it cannot be set, `unknown`: to any kernel."""

    key: str
    value: str | None
    fixed: str = ""
    unknown: bool = False


def proc_path(key: str) -> str:
    """Return a kernel setting's file below /proc/sys."""
    return str(node_module("kernel_values").proc_path(key))


def sysctl_fact(keys: Sequence[str] = ()) -> Fact[dict[str, Sysctl]]:
    """{key: Sysctl} of these keys, and of those that are always looked at."""
    names = {proc_path(key): key for key in (*keys, *SYSCTL_KEYS)}

    def parse(text: str) -> dict[str, Sysctl]:
        rows = [line.split(None, 2) for line in text.splitlines()]
        rows = [row for row in rows if len(row) > 1 and row[0] in names]
        first = any(
            names[row[0]] == node_module("kernel_values").FIRST_NAMESPACE and row[1] != "absent" for row in rows
        )
        return {names[row[0]]: _sysctl(names[row[0]], row, first) for row in rows}

    remembered = lru_cache(maxsize=4)(parse)

    def read(recording: Recording) -> dict[str, Sysctl]:
        settings = remembered(output(recording, "sysctl"))
        asked = {names.get(path) for path in entry(recording, "sysctl").argv}
        # everybody may read these, and what is not there has a row, too
        if untold := [key for key in SYSCTL_KEYS if key in asked and key not in settings]:
            raise ParseError(f"sysctl: the output is cut: it does not tell {untold[0]}, which was asked for")
        return settings

    return Fact(
        "sysctl",
        (Command("sysctl", ("sh", "-c", shell("sysctl"), "sysctl", *names)),),
        read,
        lambda settings: f"{counted(sum(one.value is not None for one in settings.values()), 'setting')} read",
        row=400,
        about="Kernel settings as the live kernel has them, and whether they can be set here.",
    )


def _sysctl(key: str, row: list[str], first_namespace: bool) -> Sysctl:
    if row[1] == "absent" and len(row) > 2:
        values = node_module("kernel_values")
        kind, reason = values.absence(key, row[2].strip() == "folder", first_namespace)
        return Sysctl(key, None, reason, kind == values.UNKNOWN)
    value = " ".join(row[2].split()) if len(row) > 2 else ""
    return Sysctl(key, value, "" if row[1] == "-" else f"{row[1]} in this kernel view, at {value}")


SYSCTL_FACT = sysctl_fact()


_VALUES = node_module("kernel_values")


@dataclass(frozen=True, slots=True)
class BootValue:
    """The value that a boot gives a kernel setting, and the file that has the last word."""

    value: str
    file: str


@dataclass(frozen=True, slots=True)
class SysctlFiles:
    """Kernel settings of the next boot: sysctl's files in the order in which they are read, and tuned's.

    `values` are the last word on each setting that a file names in full, by its path below /proc/sys.
    """

    values: Mapping[str, BootValue]

    def of(self, key: str) -> BootValue | None:
        """Return the value of a setting by any of its spellings; None if no file names it."""
        return self.values.get(proc_path(key))


def _parse_sysctl_files(text: str) -> SysctlFiles:
    lines: dict[str, list[str]] = {}
    file = ""
    for row in text.splitlines():
        kind, _, rest = row.partition(" ")
        if kind == "file":
            file = rest
            lines[file] = []
        elif kind == "line" and file:
            lines[file].append(rest)
    if not lines and text.strip():
        raise UnknownError(f"sysctl-files: {text[:100]!r}")
    return SysctlFiles({path: BootValue(*boot_value) for path, boot_value in _VALUES.boot_values(lines).items()})


SYSCTL_FILES_FACT = text_fact(
    "sysctl_files",
    script(
        "sysctl-files",
        shell("sysctl-files", folders=" ".join(f"{folder}/*.conf" for folder in _VALUES.FOLDERS), last=_VALUES.LAST),
    ),
    _parse_sysctl_files,
    lambda files: f"{counted(len(files.values), 'setting')} in files",
    row=402,
    occasion="live",
)


_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits that a session gets: locked memory, open files, stack.

    The lower of soft and hard: numbers in limits.conf's units, or unlimited. `raisable` is false where not even root
    here may raise a limit, as in a container. `is_root`: it is root's session.
    """

    memlock: str
    nofile: str
    stack: str
    raisable: bool = True
    is_root: bool = False


def _parse_limits(text: str) -> SessionLimits:
    ulimits, _, rest = text.partition("cap ")
    limits = read_limits(ulimits.split())
    bounding, _, user = rest.strip().partition("\n")
    if not re.fullmatch(r"[0-9a-f]+", bounding.strip()):
        raise ParseError(f"CapBnd: {bounding.strip()!r}")
    raisable = bool(int(bounding, 16) >> _CAP_SYS_RESOURCE & 1)
    return SessionLimits(*limits, raisable, user == "root")


def read_limits(ulimits: Sequence[str]) -> tuple[str, str, str]:
    """(memlock, nofile, stack) of soft and hard of each: the lower of both, the soft stack; else ParseError."""
    if len(ulimits) != 6 or not all(ulimit == "unlimited" or whole(ulimit) is not None for ulimit in ulimits):
        raise ParseError(f"ulimit: {' '.join(ulimits)!r}")
    memlock, nofile = (
        min(ulimits[i : i + 2], key=lambda text: math.inf if text == "unlimited" else int(text)) for i in (0, 2)
    )
    return memlock, nofile, ulimits[4]


LIMITS_FACT = text_fact(
    "limits",
    script("session-limits"),
    _parse_limits,
    lambda limits: f"session: memlock {limits.memlock}, nofile {limits.nofile}, stack {limits.stack}",
    row=410,
)


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """The limits that a fresh login gets, read by root: an older session's say nothing of the files.

    The lower of soft and hard of `user`'s login. `uses_pam` is that of the SSH server of the session, None if it could
    not be asked, or if both are alike.
    """

    user: str
    memlock: str | None
    nofile: str | None
    stack: str | None
    uses_pam: bool | None


def _parse_login_limits(text: str) -> LoginLimits:
    lines = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    if not lines.get("user"):
        raise ParseError(f"login-limits: {text[:200]!r}")
    memlock, nofile, stack = read_limits(lines["login"].split()) if lines.get("login", "").strip() else (None,) * 3
    pam = {"yes": True, "no": False}.get(lines.get("pam", "").strip())
    return LoginLimits(lines["user"], memlock, nofile, stack, pam)


LOGIN_LIMITS_FACT = text_fact(
    "login_limits",
    script("login-limits", waits=True),
    _parse_login_limits,
    lambda limits: f"login of {limits.user}: memlock {limits.memlock}, nofile {limits.nofile}, stack {limits.stack}",
    absent="not asked by root, or no runuser",
    row=411,
    occasion="live",
)


_NAMES = ("MEMLOCK", "NOFILE", "STACK")
_DEFAULTS = ",".join(f"DefaultLimit{name}Soft" for name in _NAMES)
_LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC"
_UNIT_LIMITS_SHOW = f"""\
[ -d /run/systemd/system ] || exit 3
systemctl show --no-pager --property={_DEFAULTS}
printf 'RemoveIPC=%s\\n' "$(busctl get-property {_LOGIND} 2>/dev/null)"
"""


@dataclass(frozen=True, slots=True)
class UnitLimits:
    """The limits that systemd gives a unit by default, in bytes and files or `infinity`, and logind's RemoveIPC."""

    memlock: str | None = None
    nofile: str | None = None
    stack: str | None = None
    remove_ipc: bool | None = None


def _parse_unit_limits(text: str) -> UnitLimits:
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    memlock, nofile, stack = (values.get(f"DefaultLimit{name}Soft") or None for name in _NAMES)
    if memlock is None and nofile is None:
        raise UnknownError("unit-limits: systemd names no limit")
    remove_ipc = {"b true": True, "b false": False}.get(values.get("RemoveIPC", ""))
    return UnitLimits(memlock, nofile, stack, remove_ipc)


def _unit_limits_words(limits: UnitLimits) -> str:
    values = {"memlock": limits.memlock, "nofile": limits.nofile, "stack": limits.stack}
    shown = ", ".join(f"{name} {or_unknown(value)}" for name, value in values.items())
    return f"unit: {shown}{', RemoveIPC on' if limits.remove_ipc else ''}"


UNIT_LIMITS_FACT = text_fact(
    "unit_limits",
    script("unit-limits", _UNIT_LIMITS_SHOW, hardware=True, waits=True),
    _parse_unit_limits,
    _unit_limits_words,
    absent=NO_SYSTEMD,
    row=420,
)
