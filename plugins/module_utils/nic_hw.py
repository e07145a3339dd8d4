# SPDX-License-Identifier: Apache-2.0
"""A node's network interfaces: what they hold, and what has to be run so that they hold what should be.

Roles send it along with their module, and `nic` installs it as the program that a boot runs: it needs Python alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping, Sequence

    Run = Callable[[list[str]], tuple[int, str, str]]
    Look = dict[str, Any]

SYS, PROC = "/sys", "/proc"
RINGS = {"RX": "rx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo", "TX": "tx"}


def links(run: Run) -> dict[str, Look]:
    """{name: mtu, min_mtu, max_mtu (0: the device names none), up}; {} where `ip` does not answer."""
    status, out, _unused = run(["ip", "-details", "-json", "link", "show"])
    rows = json.loads(out) if status == 0 else []
    return {
        row["ifname"]: {
            "mtu": row["mtu"],
            "min_mtu": row.get("min_mtu", 0),
            "max_mtu": row.get("max_mtu", 0),
            "up": row.get("operstate") == "UP",
        }
        for row in rows
    }


def on_pci(name: str, sys_root: str = SYS) -> bool:
    """Return whether it is a device on the PCI bus, neither virtual nor USB."""
    return Path(f"{sys_root}/class/net/{name}/device/subsystem").resolve().name == "pci"


def session_interface(run: Run, local_address: str) -> str:
    """Return the interface with this address, through which an operator's session comes; empty if none has it."""
    status, out, _unused = run(["ip", "-json", "address", "show"])
    for row in json.loads(out) if status == 0 and local_address else []:
        if any(address.get("local") == local_address for address in row.get("addr_info", ())):
            return str(row["ifname"])
    return ""


def session_address(proc_root: str = PROC) -> str:
    """Return this host's address in SSH_CONNECTION, of this process or one that it comes from: sudo drops it."""
    pid = os.getpid()
    while pid > 1:
        try:
            environ = Path(proc_root, str(pid), "environ").read_bytes()
            match = re.search(rb"(?:^|\0)SSH_CONNECTION=\S+ \S+ (\S+) ", environ)
            stat = Path(proc_root, str(pid), "stat").read_text(encoding="utf-8", errors="replace")
            pid = int(stat.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return ""
        if match:
            return match.group(1).decode()
    return ""


def rings(run: Run, name: str) -> tuple[dict[str, int], dict[str, int]] | None:
    """(pre-set maximums, current sizes) by the names that `ethtool -G` takes; None if the device has none."""
    status, out, _unused = run(["ethtool", "-g", name])
    if status != 0:
        return None
    maximums, _unused, current = out.partition("Current hardware settings:")
    return tuple({ring: size for ring, size in ring_sizes(half).items() if size} for half in (maximums, current))


def ring_sizes(text: str) -> dict[str, int]:
    """{ring: size} of one half of `ethtool -g`, 0 if the device has no such ring."""
    sizes = re.findall(r"^(\w[\w ]*):\s+(\d+)$", text, re.MULTILINE)
    return {RINGS[name]: int(size) for name, size in sizes if name in RINGS}


def ring_commands(name: str, wanted: Mapping[str, object], now: Mapping[str, object]) -> list[list[str]]:
    """Pure: what brings the rings of an interface from `now` to `wanted`."""
    arguments = [str(word) for ring in sorted(wanted) if now.get(ring) != wanted[ring] for word in (ring, wanted[ring])]
    return [["ethtool", "-G", name, *arguments]] if arguments else []


def interrupts(name: str, sys_root: str = SYS, proc_root: str = PROC) -> tuple[str, dict[str, str]] | None:
    """(CPUs of the interface's NUMA node, {irq: CPUs that may serve it}); None if it has no NUMA node."""
    device = f"{sys_root}/class/net/{name}/device"
    try:
        numbers = sorted((irq.name for irq in Path(device, "msi_irqs").iterdir()), key=int)
        if int(_text(f"{device}/numa_node")) < 0:
            return None
        cpus = _text(f"{device}/local_cpulist")
        return cpus, {irq: _text(f"{proc_root}/irq/{irq}/smp_affinity_list") for irq in numbers}
    except (OSError, ValueError):
        return None


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def cpu_set(text: str) -> frozenset[int]:
    """Return the CPUs of a list as the kernel writes it, such as `0-2,8`."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _unused, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def commands(run: Run, name: str, wanted: Mapping[str, Any], link: Look) -> list[list[str]]:
    """Return what has to be run for `name` to hold what is wanted; nothing if it does, or if it cannot."""
    todo = []
    if wanted.get("mtu") and link["mtu"] != wanted["mtu"] and mtu_fits(link, wanted["mtu"]):
        todo.append(["ip", "link", "set", "dev", name, "mtu", str(wanted["mtu"])])
    sizes = rings(run, name) if wanted.get("rings") else None
    if sizes:
        todo += ring_commands(name, *sizes)
    served = interrupts(name) if wanted.get("irq") else None
    if served:
        cpus, affinity = served
        for irq, now in affinity.items():
            if not cpu_set(now) <= cpu_set(cpus):
                todo.append(["write", f"{PROC}/irq/{irq}/smp_affinity_list", cpus])
    return todo


def mtu_fits(link: Look, mtu: int) -> bool:
    """Return whether the device can do it, as far as it says."""
    return link["min_mtu"] <= mtu and (not link["max_mtu"] or mtu <= link["max_mtu"])


def execute(run: Run, command: Sequence[str]) -> str:
    """Run it, or write a kernel file; the reason if it did not work."""
    if command[0] != "write":
        status, out, err = run(list(command))
        return "" if status == 0 else (err or out).strip()
    try:
        Path(command[1]).write_text(command[2], encoding="utf-8")
    except OSError as error:
        return f"{command[1]}: {error.strerror}"
    return ""


def run_program(argv: list[str]) -> tuple[int, str, str]:
    """Return exit status and output; 127 if it is not installed or did not end in time."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)  # pylint: disable=ansible-bad-function
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def main(path: str) -> int:
    """Apply the settings of this file at a boot to the interfaces that it names; 1 if one does not hold them."""
    wanted = json.loads(Path(path).read_text(encoding="utf-8"))
    there, failures = links(run_program), []
    for name in wanted["interfaces"]:
        if name not in there:
            failures.append(f"{name}: no such interface")
            continue
        reasons = [execute(run_program, command) for command in commands(run_program, name, wanted, there[name])]
        failures += [f"{name}: {reason}" for reason in reasons if reason]
    sys.stderr.write("".join(line + "\n" for line in failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))  # pylint: disable=ansible-bad-function
