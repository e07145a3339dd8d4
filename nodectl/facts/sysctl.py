"""Kernel settings as the live kernel has them, and whether they can be set here."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodectl.common.counting import counted
from nodectl.common.resources import node_module
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, output
from nodectl.model.recording import Command, Recording

# KEY FIXED VALUE a line, or KEY absent and whether the folder is there that would hold it; FIXED is why no writing is
# possible here, - where it is. A file's mode says what the kernel allows, the mount what a container does (the nearest
# mount above the file decides); neither depends on who asks.
# awk reads, because the kernel gives a setting only to who takes it at once, and shells take byte by byte.
_SHOW = """\
cd /proc/sys || exit 3
for key; do
  [ -e "$key" ] && continue
  if [ -d "${key%/*}" ]; then printf '%s absent folder\\n' "$key"; else printf '%s absent nothing\\n' "$key"; fi
done
stat -c '%n %A' -- "$@" 2>/dev/null | awk 'BEGIN {
  while ((getline < "/proc/self/mountinfo") > 0)
    if (($5 == "/proc" || index($5, "/proc/sys") == 1) && mounts[$5] != "ro")
      mounts[$5] = ("," $6 "," $NF ",") ~ /,ro,/ ? "ro" : "rw"
  while ((getline < "-") > 0) if ($2 ~ /^..w/) fixed[$1] = "-"
  for (number = 1; number < ARGC; number++) {
    key = ARGV[number]
    why = key in fixed ? "-" : "read-only"
    for (at = "/proc/sys/" key; at != "" && !(at in mounts); ) sub(/\\/[^\\/]*$/, "", at)
    if (at != "" && mounts[at] == "ro") why = "read-only"
    while ((getline value < key) > 0) print key, why, value
    close(key)
  }
}' "$@"
"""
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
    """One kernel setting; `value` None where this kernel view has none, `fixed` says why it cannot be set here.

    `unknown`: no kernel of this version has it, so far as can be told.
    """

    key: str
    value: str | None
    fixed: str = ""
    unknown: bool = False


def proc_path(key: str) -> str:
    """A kernel setting's file below /proc/sys."""
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

    return Fact("sysctl", (Command("sysctl", ("sh", "-c", _SHOW, "sysctl", *names)),), read, _words, row=400)


def _sysctl(key: str, row: list[str], first_namespace: bool) -> Sysctl:
    if row[1] == "absent" and len(row) > 2:
        values = node_module("kernel_values")
        kind, reason = values.absence(key, row[2].strip() == "folder", first_namespace)
        return Sysctl(key, None, reason, kind == values.UNKNOWN)
    if row[1] == "absent":  # a recording of an earlier version, which did not say more
        return Sysctl(key, None, "absent from this kernel view")
    value = " ".join(row[2].split()) if len(row) > 2 else ""
    return Sysctl(key, value, "" if row[1] == "-" else f"{row[1]} in this kernel view, at {value}")


def _words(settings: dict[str, Sysctl]) -> str:
    return f"{counted(sum(1 for setting in settings.values() if setting.value is not None), 'setting')} read"


FACT = sysctl_fact()
