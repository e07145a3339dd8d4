# SPDX-License-Identifier: Apache-2.0
"""Kernel settings: where the kernel keeps one, what never_lower makes of a value, and why a setting is not there.

Modules use it on nodes, and nodectl's checks on the controller: what the one sets, the other takes for held.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable, Mapping

# of files with one name the first folder's counts; all of them are then read in the order of their names (sysctl.d(5))
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
# `sysctl --system` reads it last; systemd by a link below /etc/sysctl.d
LAST = "/etc/sysctl.conf"
_LINE = re.compile(r"-?\s*([^=\s]+)\s*=\s*(.*)")

# why a key is not there: nobody has it, what brings it is not loaded, or only this view of the kernel lacks it
UNKNOWN, LATER, HIDDEN = "unknown", "later", "hidden"
# only the first network namespace has it; others use its limits without a file that shows them
FIRST_NAMESPACE = "net.core.netdev_max_backlog"

# a module or an interface brings folders below these; `nf_conntrack` puts its keys into a folder that exists without it
_AREAS = ("abi", "crypto", "debug", "dev", "fs", "fscache", "kernel", "lnet", "net", "sunrpc", "user", "vm", "xen")
_CONNTRACK = re.compile(r"net\.(netfilter\.nf_conntrack_\w+|nf_conntrack_max)$")
# Linux 6.18, /proc/sys/net of the first namespace against that of a new one
_OF_FIRST_NAMESPACE = re.compile(
    r"net\.core\.(bpf_jit_\w+|busy_(poll|read)|default_qdisc|dev_weight\w*|devconf_inherit_init_net"
    r"|fb_tunnels_only_for_init_net|flow_limit_\w+|gro_normal_batch|high_order_alloc_disable|max_skb_frags|mem_pcpu_rsv"
    r"|message_(burst|cost)|netdev_\w+|rps_sock_flow_entries|skb_defer_max|warnings|[rw]mem_(default|max)|optmem_max)$"
    r"|net\.ipv4\.(cipso_\w+|fib_sync_mem|inet_peer_\w+|ipfrag_secret_interval|route\.\w+|tcp_available_ulp|tcp_low_latency"
    r"|tcp_max_orphans|tcp_mem|udp_mem|neigh\.default\.gc_\w+)$"
    r"|net\.ipv6\.(calipso_\w+|ip6frag_secret_interval|mld_\w+|route\.\w+|neigh\.default\.gc_\w+)$"
    r"|net\.netfilter\.nf_log_all_netns$"
)
# kernels are built without these
_OF_CONFIGURATION = re.compile(
    r"kernel\.(numa_balancing\w*|sched_autogroup_enabled|nmi_watchdog|io_uring_\w+|panic_on_oops|task_delayacct)$"
    r"|vm\.(zone_reclaim_mode|min_(slab|unmapped)_ratio|numa_\w+|\w*hugepages\w*|hugetlb_\w+|compact\w+|extfrag_threshold)$"
    r"|net\.core\.(bpf_jit_\w+|busy_(poll|read)|rps_sock_flow_entries|flow_limit_\w+)$"
)


def dotted(key: str) -> str:
    """Return the one spelling of a key that is written, recorded and compared: `a.b/c` for sysctl's `a/b.c`."""
    first = next((letter for letter in key if letter in "./"), ".")
    return key.translate(str.maketrans("./", "/.")) if first == "/" else key


def proc_path(key: str) -> str:
    """Return a key's file below /proc/sys.

    After a first dot, a slash in it stands for a dot in a name, as in sysctl.d.
    """
    first = next((letter for letter in key if letter in "./"), "/")
    return key.translate(str.maketrans("./", "/.")) if first == "." else key


def why_no_key(key: str) -> str:
    """Return why no one setting can be called so; "" if one can."""
    if set(key) & set("*?[]"):
        return "it is a pattern, and each setting is to be named in full"
    if set(key) & set("=#;") or key.split() != [key]:
        return "a name has neither blanks nor =, # or ;"
    if {"", ".", ".."} & set(proc_path(key).split("/")):
        return "it is no path below /proc/sys"
    return ""


def raised(present: str, wanted: str, never_lower: bool) -> str:
    """Return `wanted`; with `never_lower` each of its numbers is at least the one that stands in `present`."""
    old, new = present.split(), wanted.split()
    if not never_lower or len(old) != len(new) or not all(re.match(r"-?\d+$", word) for word in old + new):
        return " ".join(new)
    return " ".join(map(str, map(max, map(int, old), map(int, new))))


def is_held(live: str, wanted: str, never_lower: bool) -> bool:
    """Return whether nothing has to be set: `live` is what `raised` makes of the two."""
    return " ".join(live.split()) == raised(live, wanted, never_lower)


def boot_values(files: Mapping[str, Iterable[str]], folders: tuple[str, ...] = FOLDERS) -> dict[str, tuple[str, str]]:
    """Return {path below /proc/sys: (value, file)}: the last word on each key that sysctl's files name in full.

    `files` are the lines of each, of one folder after the other; what lies in none of the folders is read last.
    """
    named: dict[str, str] = {}
    for file in files:
        if os.path.dirname(file) in folders:
            named.setdefault(os.path.basename(file), file)
    order = [named[name] for name in sorted(named)]
    values = {}
    for file in [*order, *(file for file in files if os.path.dirname(file) not in folders)]:
        for line in files[file]:
            setting = _LINE.match(line.strip())
            # a pattern (`net.*`) never goes over a setting that another line names in full
            if setting and not line.lstrip().startswith(("#", ";")) and not set("*?[") & set(setting.group(1)):
                values[proc_path(setting.group(1))] = (" ".join(setting.group(2).split()), file)
    return values


def absence(key: str, folder: bool, first_namespace: bool) -> tuple[str, str]:
    """(UNKNOWN, LATER or HIDDEN, the reason) of a key that /proc/sys lacks.

    `folder`: the folder is there that would hold it. `first_namespace`: FIRST_NAMESPACE is there.
    """
    path = proc_path(key)
    dotted = path.replace("/", ".")
    if _CONNTRACK.match(dotted):
        return LATER, "the module nf_conntrack is not loaded"
    if _OF_CONFIGURATION.match(dotted):
        return HIDDEN, "this kernel is built without it"
    if not first_namespace and _OF_FIRST_NAMESPACE.match(dotted):
        return HIDDEN, "only the machine's own network namespace has it"
    if not folder and path.partition("/")[0] in _AREAS:
        return LATER, f"the kernel has no /proc/sys/{os.path.dirname(path)}: its module or interface is missing"
    return UNKNOWN, "this kernel has no such setting"
