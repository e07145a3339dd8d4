#!/usr/bin/python
"""Ansible module: the NVIDIA driver that is loaded, against the stack; and what stops one that is not."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import findings, node_nvidia
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import packages
from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_text

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Finding = dict[str, str]

DOCUMENTATION = r"""
module: nvidia_driver_look
short_description: The NVIDIA driver that is loaded, against the stack
description: Reads the loaded module, DKMS, nouveau and Secure Boot from the kernel's own files; changes nothing.
author: The nodectl authors
options:
  mode: {description: Whether nodectl manages it., type: str, choices: [keep, manage], required: true}
  branch: {description: Its branch; empty means the stack needs no driver., type: str, default: ""}
  min: {description: Lowest version., type: str, default: ""}
  flavour: {description: proprietary or open., type: str, default: ""}
  packages: {description: Names of the driver's package., type: list, elements: str, default: []}
  root: {description: Where the file system begins., type: path, default: /}
"""
EXAMPLES = r"""
- nvidia_driver_look:
    mode: keep
    min: "525"
"""
RETURN = r"""
findings: {description: What differs from the stack., type: list, elements: dict, returned: always}
"""

CHECK = "nvidia_driver"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def numbers(version: str) -> list[int]:
    """`535.183.01` as a list that compares."""
    return [int(part) for part in re.findall(r"\d+", version)]


def finding(status: str, subject: str, expected: str, actual: str, remedy: str = "") -> Finding:
    """One finding of this check."""
    made: Finding = findings.finding(CHECK, status, subject, expected=expected, actual=actual, remedy=remedy)
    return made


def installed(root: str, names: list[str]) -> str:
    """Upstream version of the driver's package; empty where none of the names is there."""
    status = read_text(str(Path(root, packages.STATUS.lstrip("/"))))
    present = packages.parse(status, "")[0]
    there = [present[name]["version"] for name in names if present.get(name, {}).get("state") == "installed"]
    return there[0].partition("-")[0] if there else ""


def loaded_or_not(params: dict[str, Any], there: str) -> list[Finding]:
    """The loaded driver against the lowest version, the branch and the installed package."""
    root, driver = params["root"], node_nvidia.driver(params["root"])
    version, low, branch = driver["version"] or "", params["min"], params["branch"]
    if not version:
        if not node_nvidia.pci_devices(root)["gpus"]:
            return [finding("skipped", "loaded", f"{low} or later", "no NVIDIA GPU on this host's PCI bus")]
        remedy = f"reboot: {there} is installed" if there else "provision with nodectl_driver: manage"
        return [finding("failed", "loaded", f"{low} or later", "none", remedy)]
    good = numbers(version) >= numbers(low)
    remedy = "update the driver, or choose a stack for an older CUDA"
    found = [finding("ok" if good else "failed", "loaded", f"{low} or later", version, remedy)]
    if params["mode"] == "manage":
        good = version.partition(".")[0] == branch and version == there
        expected = f"{there}, as installed" if there else f"branch {branch}"
        found.append(finding("ok" if good else "failed", "branch", expected, version, "reboot, or provision again"))
    wanted, flavour = params["flavour"], driver["flavour"]
    if wanted:
        # either kind serves CUDA; which one a GPU may have is NVIDIA's to say
        found.append(
            finding("ok" if wanted == flavour else "warning", "kernel modules", wanted, flavour or "?", "none needed")
        )
    return found


def obstacles(root: str, there: str) -> list[Finding]:
    """Whatever keeps an installed driver from being loaded: no module for this kernel, nouveau, Secure Boot."""
    base, kernel, found = Path(root), platform.release(), []
    if there:
        tree = base / "var/lib/dkms/nvidia" / there
        built = list(tree.glob(f"{kernel}/*/module/*.ko*"))
        logs = sorted(tree.glob("build/make.log")) + sorted(tree.glob(f"{kernel}/*/log/make.log"))
        if built:
            found.append(finding("ok", "DKMS", f"a module for {kernel}", f"{len(built)} modules of {there}"))
        elif tree.is_dir():
            remedy = f"install linux-headers-{kernel}, then: dkms autoinstall -k {kernel}"
            found.append(finding("failed", "DKMS", f"a module for {kernel}", last_words(logs), remedy))
    if (base / "sys/module/nouveau").is_dir():
        remedy = "reboot: the driver's package keeps nouveau from loading"
        found.append(finding("warning", "nouveau", "not loaded", "loaded", remedy))
    try:
        secure = (base / SECURE_BOOT).read_bytes()[-1:] == b"\x01"
    except OSError:
        secure = False
    if secure and not (base / "sys/module/nvidia").is_dir():
        remedy = "enrol the key that signs DKMS modules (mokutil --import), or switch Secure Boot off"
        found.append(
            finding("warning", "Secure Boot", "modules signed by an enrolled key", "on, nvidia not loaded", remedy)
        )
    return found


def last_words(logs: list[Path]) -> str:
    """Why the build ended."""
    for log in logs:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        if lines:
            return f"none; {log} ends: {' | '.join(lines[-3:])}"
    return "none, and no log of a build"


def main() -> None:
    """Look, compare."""
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["keep", "manage"], "required": True},
            "branch": {"type": "str", "default": ""},
            "min": {"type": "str", "default": ""},
            "flavour": {"type": "str", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    params = module.params
    there = installed(params["root"], params["packages"])
    found = [*loaded_or_not(params, there), *obstacles(params["root"], there)] if params["min"] else []
    module.exit_json(changed=False, findings=found)


if __name__ == "__main__":
    main()
