#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: who keeps this host's clock, and whether it is the host's own."""

from __future__ import annotations

DOCUMENTATION = r"""
module: time_host
short_description: Find the time service of a host
description:
  - Finds the running time service. Whether the clock is right, nodectl.fleet.health judges.
  - A container or namespace has its machine's clock, and none of its own to set. Changes nothing.
author: The nodectl authors (!UNKNOWN)
options: {}
"""
EXAMPLES = r"""
- nodectl.fleet.time_host:
"""
RETURN = r"""
owner: {description: The running time service; empty where none., type: str, returned: always}
settable: {description: The clock is this host's own., type: bool, returned: always}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or

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


def running_services(proc: Path) -> list[str]:
    """Time services among the processes of this host."""
    services = {SERVICES.get(read_or(str(path)).strip(), "") for path in proc.glob("[0-9]*/comm")}
    return sorted(services - {""})


def main() -> None:
    """Report the running service, and whether this host has a clock of its own."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    owners = running_services(Path("/proc"))
    settable = Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE
    module.exit_json(changed=False, owner=owners[0] if owners else "", settable=settable)


if __name__ == "__main__":
    main()
