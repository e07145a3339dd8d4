#!/usr/bin/python
"""Ansible module: who keeps this host's clock, and whether it is right, asked of the kernel and of that service."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding, not_settable

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]

DOCUMENTATION = r"""
module: time_host
short_description: Look at a host's clock
description:
  - Finds the running time service, asks the kernel whether the clock is synchronised and the service how far it is off.
  - A container or namespace has its machine's clock, and none of its own to set. Changes nothing.
author: The nodectl authors
options:
  max_offset_s: {description: How far the clock may be off., type: float, required: true}
  install: {description: A host without a time service gets one., type: bool, default: true}
"""
EXAMPLES = r"""
- time_host: {max_offset_s: 1.0}
"""
RETURN = r"""
owner: {description: The running time service; empty where none., type: str, returned: always}
owners: {description: All that run., type: list, elements: str, returned: always}
settable: {description: The clock is this host's own., type: bool, returned: always}
synchronised: {description: The kernel says so., type: bool, returned: always}
offset_s: {description: How far it is off; null where nobody knows., type: float, returned: always}
findings: {description: What a verify task tells., type: list, elements: dict, returned: always}
"""

# process names, as the kernel cuts them at 15 characters
SERVICES = {
    "chronyd": "chrony",
    "systemd-timesyn": "systemd-timesyncd",
    "ntpd": "ntp",
    "ptp4l": "linuxptp",
    "phc2sys": "linuxptp",
}
# inode of the first PID namespace (PROC_PID_INIT_INO of the kernel): whoever lives in another shares a machine's clock
FIRST_PID_NAMESPACE = 0xEFFFFFFC
STA_UNSYNC, TIME_ERROR = 0x0040, 5
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


class Timex(ctypes.Structure):
    """struct timex of adjtimex(2)."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    ]


def running_services(proc: Path) -> list[str]:
    """Time services among the processes of this host."""
    found = set()
    for path in proc.glob("[0-9]*/comm"):
        try:
            found.add(SERVICES.get(path.read_text().strip(), ""))
        except OSError:
            continue
    return sorted(found - {""})


def kernel_synchronised() -> bool | None:
    """What adjtimex says; None where it cannot be asked."""
    libc = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6", use_errno=True)
    state = Timex()
    code = libc.adjtimex(ctypes.byref(state))
    if code < 0:
        return None
    return code != TIME_ERROR and not state.status & STA_UNSYNC


def chrony_offset(text: str) -> float | None:
    """Seconds off, from `chronyc -c tracking`; None where it has no source."""
    fields = text.strip().split(",")
    if len(fields) < 14 or fields[13] == "Not synchronised":
        return None
    return float(fields[4])


def timesyncd_offset(text: str) -> float | None:
    """Seconds off, from `timedatectl timesync-status`; None where it has no server yet."""
    found = re.search(r"^\s*Offset: ([+-]?[\d.]+)(\S+)$", text, re.MULTILINE)
    return float(found.group(1)) * UNITS[found.group(2)] if found and found.group(2) in UNITS else None


def ntp_offset(text: str) -> float | None:
    """Seconds off, from `ntpq -c rv`, which counts milliseconds."""
    found = re.search(r"\boffset=([+-]?[\d.]+)", text)
    return float(found.group(1)) / 1000 if found else None


ASK: dict[str, tuple[list[str], Callable[[str], float | None]]] = {
    "chrony": (["chronyc", "-n", "-c", "tracking"], chrony_offset),
    "systemd-timesyncd": (["timedatectl", "timesync-status"], timesyncd_offset),
    "ntp": (["ntpq", "-c", "rv"], ntp_offset),
}


def offset(run: Run, owner: str) -> float | None:
    """How far the clock is off, by the service that keeps it."""
    if owner not in ASK:
        return None
    command, read = ASK[owner]
    status, out, _ = run(command, environ_update={"LC_ALL": "C"})
    return read(out) if status == 0 else None


def judge(state: dict[str, Any], max_offset_s: float, install: bool) -> list[dict[str, str]]:
    """One owner, synchronised, and near enough."""
    wanted = f"synchronised, less than {max_offset_s:g} s off"
    if not state["settable"] and not state["owner"]:
        return [not_settable("time_sync", "clock", wanted, "it has its machine's clock")]
    findings = []
    names = ", ".join(state["owners"]) or "none"
    status = "ok" if len(state["owners"]) == 1 else "failed" if install and not state["owners"] else "warning"
    remedy = (
        "keep one time service, and disable the others" if state["owners"] else "nodectl provision --tags time_sync"
    )
    findings.append(finding("time_sync", status, "owner", expected="one", actual=names, remedy=remedy))
    far = state["offset_s"] is not None and abs(state["offset_s"]) >= max_offset_s
    known = "" if state["offset_s"] is None else f", {state['offset_s']:+.6f} s off"
    if state["synchronised"] is None:
        status, actual = "unknown", f"the kernel does not say{known}"
    else:
        # a service that was just started needs minutes for its first word
        status = "failed" if far else "ok" if state["synchronised"] else "warning"
        actual = f"{'synchronised' if state['synchronised'] else 'not synchronised'}{known}"
    remedy = "see whether the host reaches its time servers (chronyc sources, timedatectl timesync-status)"
    findings.append(finding("time_sync", status, "clock", expected=wanted, actual=actual, remedy=remedy))
    return findings


def main() -> None:
    """Look, compare, report."""
    module = AnsibleModule(
        argument_spec={
            "max_offset_s": {"type": "float", "required": True},
            "install": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    owners = running_services(Path("/proc"))
    owner = owners[0] if owners else ""
    state: dict[str, Any] = {
        "owner": owner,
        "owners": owners,
        "settable": Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE,
        "synchronised": kernel_synchronised(),
        "offset_s": offset(module.run_command, owner),
    }
    findings = judge(state, module.params["max_offset_s"], module.params["install"])
    module.exit_json(changed=False, findings=findings, **state)


if __name__ == "__main__":
    main()
