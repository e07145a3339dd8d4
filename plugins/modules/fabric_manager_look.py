#!/usr/bin/python
"""Ansible module: fabric manager's own version against the loaded driver's, and whether it runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import findings, node_nvidia

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Finding = dict[str, str]

DOCUMENTATION = r"""
module: fabric_manager_look
short_description: Fabric manager against the loaded driver
description: Asks the program for its version, since a package's name may promise another; changes nothing.
author: The nodectl authors
options:
  wanted: {description: The hardware profile says NVSwitch., type: bool, required: true}
  service: {description: The unit., type: str, required: true}
  program: {description: The program., type: str, default: nv-fabricmanager}
  root: {description: Where the file system begins., type: path, default: /}
"""
EXAMPLES = r"""
- fabric_manager_look:
    wanted: true
    service: nvidia-fabricmanager.service
"""
RETURN = r"""
findings: {description: What differs., type: list, elements: dict, returned: always}
"""

CHECK = "fabric_manager"
SAYS = re.compile(r"version is\s*:\s*(\d[\d.]*)", re.IGNORECASE)


def finding(status: str, subject: str, expected: str, actual: str, remedy: str = "") -> Finding:
    """One finding of this check."""
    made: Finding = findings.finding(CHECK, status, subject, expected=expected, actual=actual, remedy=remedy)
    return made


def judged(module: AnsibleModule, driver: str) -> list[Finding]:
    """Its version, and its unit where systemd runs."""
    program = module.get_bin_path(module.params["program"])
    status, out, err = module.run_command([program, "--version"]) if program else (1, "", "")
    said = SAYS.search(out + err)
    actual = said[1] if said else ("absent" if not program else f"it says no version (exit {status})")
    remedy = (
        f"install nvidia-fabricmanager {driver}: it refuses to start beside another driver; or reboot into its driver"
    )
    good = said is not None and said[1] == driver
    found = [finding("ok" if good else "failed", "version", f"{driver}, the loaded driver's", actual, remedy)]
    if node_nvidia.read("/proc/1/comm").strip() == "systemd":
        active = module.run_command(["systemctl", "is-active", module.params["service"]])[1].strip()
        remedy = f"journalctl -u {module.params['service']}"
        found.append(finding("ok" if active == "active" else "failed", "unit", "active", active or "unknown", remedy))
    return found


def main() -> None:
    """Look, compare."""
    module = AnsibleModule(
        argument_spec={
            "wanted": {"type": "bool", "required": True},
            "service": {"type": "str", "required": True},
            "program": {"type": "str", "default": "nv-fabricmanager"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    found: list[Any] = []
    if module.params["wanted"]:
        driver = node_nvidia.driver(root)["version"]
        found = (
            judged(module, driver)
            if driver
            else [finding("unknown", "version", "the driver's", "no driver is loaded", "load it")]
        )
    module.exit_json(changed=False, findings=found)


if __name__ == "__main__":
    main()
