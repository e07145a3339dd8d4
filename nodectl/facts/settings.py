"""What provisioning sets, read live: kernel settings, limits, NCCL's files, time, and what only root sees."""

import re
from collections.abc import Sequence

from nodectl.errors import ParseError
from nodectl.facts.base import NOT_INSTALLED, AbsentError, Fact, UnknownError, entry, output
from nodectl.model.recording import Command, Recording
from nodectl.model.settings import Bridges, ClockSync, KernelLog, NcclFiles, SessionLimits, Sysctl

# KEY FIXED VALUE a line; FIXED is why no writing is possible here, - where it is. A file's mode says what the kernel
# allows, the mount what a container does; neither depends on who asks.
_SYSCTL = """\
for key; do
  file=/proc/sys/$key fixed=-
  if [ ! -e "$file" ]; then printf '%s absent \\n' "$key"; continue; fi
  case $(stat -c %A "$file") in ??w*) ;; *) fixed=read-only ;; esac
  case ,$(findmnt -n -o OPTIONS -T "$file" 2>/dev/null), in *,ro,*) fixed=read-only ;; esac
  printf '%s %s %s\\n' "$key" "$fixed" "$(cat "$file" 2>/dev/null || echo -)"
done
"""
# process 1's bounding set says what root can ever do here, and everybody may read it
_LIMITS = (
    "for each in l n s; do ulimit -S$each; ulimit -H$each; done; sed -n 's/^CapBnd:[[:space:]]*/cap /p' /proc/1/status"
)
_CAP_SYS_RESOURCE = 24
_SYNC = """\
if command -v chronyc >/dev/null && told=$(chronyc -n tracking 2>/dev/null); then
  printf 'chrony %s\\n' "$(printf '%s' "$told" | sed -n 's/^Leap status *: *//p')"
elif command -v timedatectl >/dev/null && told=$(timedatectl show --property=NTPSynchronized --value 2>/dev/null); then
  printf 'systemd %s\\n' "$told"
else
  exit 3
fi
"""
# `nodectl sudoers` prints exactly these; a host that does not allow them is unknown there, not failed
ROOT_ARGV = {"dmesg": ("dmesg",), "lspci-acs": ("lspci", "-D", "-vvv")}
_AS_ROOT = (
    'command -v "$1" >/dev/null || exit 127; if [ "$(id -u)" -eq 0 ]; then exec "$@"; else exec sudo -n -- "$@"; fi'
)
_XID = re.compile(r"NVRM: Xid \(")
_DEVICE = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)")
_REDIRECT = {"SrcValid+", "ReqRedir+", "CmpltRedir+", "UpstreamFwd+"}


def proc_path(key: str) -> str:
    """A kernel setting's file below /proc/sys; after a first dot, a slash stands for a dot in a name."""
    first = next((letter for letter in key if letter in "./"), "/")
    return key.translate(str.maketrans("./", "/.")) if first == "." else key


def sysctl_fact(keys: Sequence[str]) -> Fact:
    """{key: Sysctl} of these keys."""
    names = {proc_path(key): key for key in keys}

    def read(recording: Recording) -> dict[str, Sysctl]:
        rows = [line.split(None, 2) for line in output(recording, "sysctl").splitlines()]
        return {names[row[0]]: _sysctl(names[row[0]], row) for row in rows if len(row) > 1 and row[0] in names}

    return Fact("sysctl", lambda venv: (Command("sysctl", ("sh", "-c", _SYSCTL, "sysctl", *names)),), read)


def _sysctl(key: str, row: list[str]) -> Sysctl:
    if row[1] == "absent":
        return Sysctl(key, None, "absent from this kernel view")
    value = " ".join(row[2].split()) if len(row) > 2 else ""
    return Sysctl(key, value, "" if row[1] == "-" else f"{row[1]} in this kernel view, at {value}")


def _limits(recording: Recording) -> SessionLimits:
    text, _, bounding = output(recording, "session-limits").partition("cap ")
    words = text.split()
    if len(words) != 6 or not all(word == "unlimited" or word.isdigit() for word in words):
        raise ParseError(f"ulimit: {' '.join(words)!r}")
    if not re.fullmatch(r"[0-9a-f]+", bounding.strip()):
        raise ParseError(f"CapBnd: {bounding.strip()!r}")
    raisable = bool(int(bounding, 16) >> _CAP_SYS_RESOURCE & 1)
    memlock, nofile = (min(words[i : i + 2], key=_number) for i in (0, 2))
    return SessionLimits(memlock, nofile, words[4], raisable)


def _number(text: str) -> float:
    return float("inf") if text == "unlimited" else float(text)


def _nccl(recording: Recording) -> NcclFiles:
    return NcclFiles(_file(recording, "nccl-conf"), _file(recording, "nccl-conf-user"))


def _file(recording: Recording, key: str) -> str | None:
    found = entry(recording, key)
    if found.exit_status == 0:
        return found.stdout
    if "No such file" in found.stderr:
        return None
    raise UnknownError(f"{key}: {found.stderr.strip()}")


def _sync(recording: Recording) -> ClockSync:
    found = entry(recording, "clock-sync")
    if found.exit_status != 0:
        raise UnknownError("neither chronyc nor timedatectl answers")
    by, _, told = found.stdout.strip().partition(" ")
    return ClockSync((by, told) in (("chrony", "Normal"), ("systemd", "yes")), f"{by}: {told}")


def _as_root(recording: Recording, key: str) -> str:
    """The output of a command that root ran; Unknown where sudo would not."""
    program, there = ROOT_ARGV[key][0], recording.entries.get(key)
    if there is not None and there.exit_status == NOT_INSTALLED:
        raise AbsentError(f"{program} is not installed")
    found = entry(recording, key)
    if found.exit_status != 0 and found.stderr.startswith("sudo:"):
        raise UnknownError(f"{program} needs root, and sudo wants a password: see `nodectl sudoers`")
    if found.exit_status != 0:
        raise UnknownError(f"{program}: {found.stderr.strip() or found.exit_status}")
    return found.stdout


def _kernel_log(recording: Recording) -> KernelLog:
    return KernelLog(tuple(line.strip() for line in _as_root(recording, "dmesg").splitlines() if _XID.search(line)))


def _bridges(recording: Recording) -> Bridges:
    controls: dict[str, set[str]] = {}
    device = ""
    for line in _as_root(recording, "lspci-acs").splitlines():
        head = _DEVICE.match(line)
        if head:
            device = head[1] if head[2].startswith("PCI bridge") else ""
        elif device and line.strip().startswith("ACSCtl:"):
            controls[device] = set(line.split()[1:])
    virtual = re.search(r"^flags\s*:.*\bhypervisor\b", entry(recording, "cpuinfo-flags").stdout, re.MULTILINE)
    return Bridges(len(controls), tuple(sorted(d for d, c in controls.items() if c & _REDIRECT)), bool(virtual))


def _root_command(key: str) -> Command:
    return Command(key, ("sh", "-c", _AS_ROOT, "as-root", *ROOT_ARGV[key]), deadline_s=20)


LIMITS = Fact("limits", lambda venv: (Command("session-limits", ("sh", "-c", _LIMITS)),), _limits)
NCCL = Fact(
    "nccl_files",
    lambda venv: (
        Command("nccl-conf", ("cat", "/etc/nccl.conf")),
        Command("nccl-conf-user", ("sh", "-c", 'cat "$HOME/.nccl.conf"')),
    ),
    _nccl,
)
SYNC = Fact("clock_sync", lambda venv: (Command("clock-sync", ("sh", "-c", _SYNC)),), _sync)
LOG = Fact("kernel_log", lambda venv: (_root_command("dmesg"),), _kernel_log)
BRIDGES = Fact(
    "bridges",
    lambda venv: (_root_command("lspci-acs"), Command("cpuinfo-flags", ("grep", "-m1", "^flags", "/proc/cpuinfo"))),
    _bridges,
)
