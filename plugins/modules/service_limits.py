#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: systemd and logind read their files anew where what they give to services is not what was written."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_limits
short_description: Let systemd and logind read their limits anew
description:
  - Asks systemd for the limits that it gives to services, and logind for RemoveIPC, and reloads who has another answer.
  - Where systemd is not process 1 there is nothing to do.
author: The nodectl authors (!UNKNOWN)
options:
  memlock: {description: Locked memory in KiB or unlimited., type: str, required: true}
  nofile: {description: Open files or unlimited., type: str, required: true}
"""
EXAMPLES = r"""
- nodectl.fleet.service_limits: {memlock: unlimited, nofile: "1048576"}
"""
RETURN = r"""
reloaded: {description: The programs that read their files anew., type: list, elements: str, returned: always}
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    Run = Callable[[list[str]], tuple[int, str, str]]


# the property of each limit, and its unit in those of limits.conf
SYSTEMD = {"memlock": ("DefaultLimitMEMLOCK", 1024), "nofile": ("DefaultLimitNOFILE", 1)}
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "RemoveIPC")
RELOAD = {
    "systemd": ["systemctl", "daemon-reexec"],
    "systemd-logind": ["systemctl", "try-restart", "systemd-logind.service"],
}


def number(text: str) -> float:
    """A limit as a number; unlimited is above all numbers."""
    return float("inf") if text in ("unlimited", "infinity") else float(text)


def is_low(run: Run, name: str, wanted: str) -> bool:
    """systemd gives its services less."""
    field, unit = SYSTEMD[name]
    status, out, _unused = run(["systemctl", "show", "--value", "--property", field])
    return status == 0 and number(out.strip()) < number(wanted) * unit


def removes_ipc(run: Run) -> bool:
    """logind runs, and removes shared memory of users who logged out."""
    if run(["systemctl", "is-active", "--quiet", "systemd-logind.service"])[0] != 0:
        return False
    status, out, _unused = run(["busctl", "get-property", *LOGIND])
    return status == 0 and out.split() != ["b", "false"]


def main() -> None:
    """From the live difference, so that a run killed after the files were written is finished by the next."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(argument_spec={"memlock": text, "nofile": text}, supports_check_mode=True)
    stale = []
    if Path("/run/systemd/system").is_dir():
        low = any(is_low(module.run_command, name, module.params[name]) for name in SYSTEMD)
        stale = ["systemd"] * low + ["systemd-logind"] * removes_ipc(module.run_command)
    for program in () if module.check_mode else stale:
        module.run_command(RELOAD[program], check_rc=True)
    module.exit_json(changed=bool(stale), reloaded=stale)


if __name__ == "__main__":
    main()
