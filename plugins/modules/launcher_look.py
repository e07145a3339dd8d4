#!/usr/bin/python
"""Ansible module: whether the deployed launcher runs here, with the environment that it names."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding

DOCUMENTATION = r"""
module: launcher_look
short_description: Run the launcher without a job
description: Lets the launcher read NCCL's files, and looks for the torchrun that it would start. Changes nothing.
author: The nodectl authors
options:
  path: {description: The launcher., type: path, required: true}
  venv: {description: The environment that holds torchrun., type: path, required: true}
"""
EXAMPLES = r"""
- launcher_look: {path: /opt/nodectl/bin/nodectl-launch, venv: /opt/nodectl/venv}
"""
RETURN = r"""
findings: {description: What was looked at., type: list, elements: dict, returned: always}
"""


def main() -> None:
    """Look, compare, report."""
    needed = {"type": "path", "required": True}
    module = AnsibleModule(argument_spec={"path": needed, "venv": needed}, supports_check_mode=True)
    path, torchrun = module.params["path"], os.path.join(module.params["venv"], "bin", "torchrun")
    if os.access(path, os.X_OK):
        status, out, err = module.run_command([path, "--print-env"])
        lines = (err or out).strip().splitlines()
        told = "runs" if status == 0 else f"exit status {status}: {''.join(lines[-1:])}"
    else:
        status, told = 127, "no such program, or not executable"
    starts = os.access(torchrun, os.X_OK)
    findings = [
        finding(
            "launcher",
            "ok" if status == 0 else "failed",
            path,
            expected="runs",
            actual=told,
            remedy="run `nodectl provision --tags launcher`",
        ),
        finding(
            "launcher",
            "ok" if starts else "failed",
            torchrun,
            expected="executable",
            actual="executable" if starts else "not there, or not executable",
            remedy="run `nodectl provision --tags pytorch`",
        ),
    ]
    module.exit_json(changed=False, findings=findings)


if __name__ == "__main__":
    main()
