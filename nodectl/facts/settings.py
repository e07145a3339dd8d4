"""What provisioning sets, read live: kernel settings, limits, NCCL's files, and time."""

import re
from collections.abc import Sequence

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, UnknownError, entry, output, whole
from nodectl.model.recording import Command, Recording
from nodectl.model.settings import ClockSync, NcclFiles, SessionLimits, Sysctl

# KEY FIXED VALUE a line; FIXED is why no writing is possible here, - where it is. A file's mode says what the kernel
# allows, the mount what a container does; neither depends on who asks. One process for all keys: the shell reads.
# grep reads, because the kernel gives a setting only to who takes it at once, and shells take byte by byte.
_SYSCTL = """\
cd /proc/sys || exit 3
for key; do [ -e "$key" ] || printf '%s absent \\n' "$key"; done
mounts= newline='
'
while read -r _ _ _ _ where options rest; do
  case $where in /proc | /proc/sys*)
    case ,$options,${rest##* }, in *,ro,*) mounts="$mounts $where=ro " ;; *) mounts="$mounts $where=rw " ;; esac
  esac
done </proc/self/mountinfo
modes=$newline$(stat -c '%n %A' -- "$@" 2>/dev/null)
grep -sH '' -- "$@" | while IFS=: read -r key value; do
  case $modes in *"$newline$key "??w*) fixed=- ;; *) fixed=read-only ;; esac
  at=/proc/sys/$key # the nearest mount above the file decides
  while [ -n "$at" ]; do
    case $mounts in *" $at=ro "*) fixed=read-only; break ;; *" $at=rw "*) break ;; esac
    at=${at%/*}
  done
  printf '%s %s %s\\n' "$key" "$fixed" "$value"
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


def proc_path(key: str) -> str:
    """A kernel setting's file below /proc/sys; after a first dot, a slash stands for a dot in a name."""
    first = next((letter for letter in key if letter in "./"), "/")
    return key.translate(str.maketrans("./", "/.")) if first == "." else key


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


def sysctl_fact(keys: Sequence[str] = ()) -> Fact:
    """{key: Sysctl} of these keys, and of those that are always looked at."""
    names = {proc_path(key): key for key in (*keys, *SYSCTL_KEYS)}

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
    if len(words) != 6 or not all(word == "unlimited" or whole(word) is not None for word in words):
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
