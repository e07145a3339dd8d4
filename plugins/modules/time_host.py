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
  - Says how chrony here comes to read one more file of servers; before 4.0 it knows no C(sourcedir).
author: The nodectl authors (!UNKNOWN)
options:
  servers: {description: The file of servers., type: path, default: /etc/chrony/sources.d/nodectl.sources}
  conf: {description: "Chrony's file; empty for the one that is there.", type: str, default: ""}
"""
EXAMPLES = r"""
- nodectl.fleet.time_host:
"""
RETURN = r"""
owner: {description: The running time service; empty where none., type: str, returned: always}
settable: {description: The clock is this host's own., type: bool, returned: always}
chrony:
  description: >-
    service (its unit), conf (its file; empty where it is not installed), line (what conf lacks to have the file of
    servers read; empty where it lacks nothing), reloads (servers are read anew without a restart).
  type: dict
  returned: always
"""

import os
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages
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


def is_old(version: str) -> bool:
    """Chrony knows neither `sourcedir` nor `chronyc reload sources`."""
    return bool(version) and int(version.partition(".")[0]) < 4


def lacking(conf: str, servers: str, version: str) -> str:
    """Pure: the line that chrony's file lacks to have the file of servers read; empty where it lacks none.

    `conf` is the file's text, `version` chrony's own: `sourcedir` came with 4.0.
    """
    folder = os.path.dirname(servers)
    line = "include %s" % servers if is_old(version) else "sourcedir %s" % folder
    present = [" ".join(row.split()) for row in conf.splitlines()]
    return "" if line in present else line


def chrony(module: AnsibleModule) -> dict[str, Any]:
    """How chrony is called here, and how it comes to read the file of servers."""
    service = "chronyd" if node_packages.has_dnf() else "chrony"
    places = [module.params["conf"]] if module.params["conf"] else ["/etc/chrony/chrony.conf", "/etc/chrony.conf"]
    conf = next((path for path in places if os.path.exists(path)), "")
    program = module.get_bin_path("chronyd", opt_dirs=["/usr/sbin"])
    said = module.run_command([program, "--version"])[1] if program else ""
    match = re.search(r"version (\d+\.\d+)", said)
    version = match.group(1) if match else ""
    line = lacking(read_or(conf), module.params["servers"], version) if conf else ""
    return {"service": service, "conf": conf, "line": line, "reloads": not is_old(version)}


def main() -> None:
    """Report the running service, and whether this host has a clock of its own."""
    module = AnsibleModule(
        argument_spec={
            "servers": {"type": "path", "default": "/etc/chrony/sources.d/nodectl.sources"},
            "conf": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    owners = running_services(Path("/proc"))
    settable = Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE
    module.exit_json(changed=False, owner=owners[0] if owners else "", settable=settable, chrony=chrony(module))


if __name__ == "__main__":
    main()
