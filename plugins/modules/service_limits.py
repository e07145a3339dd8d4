#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: systemd and logind read their files anew where what they give to services is not what was written."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import warn_not_settable

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    Run = Callable[[list[str]], tuple[int, str, str]]


# the property of each limit, and its unit in those of limits.conf
SYSTEMD = {"memlock": ("DefaultLimitMEMLOCKSoft", 1024), "nofile": ("DefaultLimitNOFILESoft", 1)}
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "RemoveIPC")
RELOAD = {
    "systemd": ["systemctl", "daemon-reexec"],
    "systemd-logind": ["systemctl", "try-restart", "systemd-logind.service"],
}


def number(text: str) -> float:
    """Return a limit as a number; unlimited is above all numbers."""
    return float("inf") if text in ("unlimited", "infinity") else float(text)


def is_low(run: Run, name: str, wanted: str) -> bool:
    """Return whether systemd gives its services less."""
    field, unit = SYSTEMD[name]
    status, out, _unused = run(["systemctl", "show", "--value", "--property", field])
    return status == 0 and number(out.strip()) < number(wanted) * unit


def removes_ipc(run: Run) -> bool:
    """Return whether logind runs, and removes shared memory of users who logged out."""
    if run(["systemctl", "is-active", "--quiet", "systemd-logind.service"])[0] != 0:
        return False
    status, out, _unused = run(["busctl", "get-property", *LOGIND])
    return status == 0 and out.split() != ["b", "false"]


def not_settable(limits: Mapping[str, str], most_files: str, hard: Mapping[str, float], may_raise: bool) -> list[str]:
    """Pure: `SETTING: why` of the limits that this host refuses; `hard` are root's own here, in limits.conf's units.

    `most_files` is fs.nr_open, above which the kernel lets nobody go.
    """
    reasons = []
    for name, wanted in sorted(limits.items()):
        if name == "nofile" and most_files and number(wanted) > number(most_files):
            what = f"{wanted} is above fs.nr_open, {most_files}, which is written instead"
            reasons.append(f"limits_nofile: {what}: raise that first")
        elif not may_raise and number(wanted) > hard[name]:
            unit = " KiB" if name == "memlock" else ""
            reasons.append(
                f"limits_{name}: root on this host cannot raise the limit from {hard[name]:.0f}{unit} to {wanted}"
            )
    return reasons


def bounded(name: str, wanted: str, most_files: str) -> str:
    """Return what is written of a limit: no more files than fs.nr_open, above which logins fail."""
    return most_files if name == "nofile" and most_files and number(wanted) > number(most_files) else wanted


def may_raise() -> bool:
    """Return whether this process has CAP_SYS_RESOURCE."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_or("/proc/self/status"), re.MULTILINE)
    return bool(match and int(match.group(1), 16) >> 24 & 1)


def main() -> None:
    """Reload by the live difference, so that a run killed after the files were written is finished by the next."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(argument_spec={"memlock": text, "nofile": text}, supports_check_mode=True)
    stale, most = [], read_or("/proc/sys/fs/nr_open").strip()
    if Path("/run/systemd/system").is_dir():
        low = any(is_low(module.run_command, name, bounded(name, module.params[name], most)) for name in SYSTEMD)
        stale = ["systemd"] * low + ["systemd-logind"] * removes_ipc(module.run_command)
    limits = {name: module.params[name] for name in SYSTEMD}
    kinds = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE}
    own = {name: resource.getrlimit(kinds[name])[1] for name in SYSTEMD}
    hard = {
        name: float("inf") if own[name] == resource.RLIM_INFINITY else own[name] / unit
        for name, (_field, unit) in SYSTEMD.items()
    }
    warn_not_settable(module, not_settable(limits, most, hard, may_raise()))
    if not Path("/run/systemd/system").is_dir():
        warn_not_settable(module, ["limits of services, RemoveIPC: systemd does not run"])
    for program in () if module.check_mode else stale:
        module.run_command(RELOAD[program], check_rc=True)
    module.exit_json(changed=bool(stale), reloaded=stale)


if __name__ == "__main__":
    main()
