#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0 (goes together with the GNU General Public License v3.0 of Ansible itself)
"""Ansible module: all that pinned requirements bring, each with its version, as uv resolves it on this host today."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_lock
short_description: Versions of all that pinned requirements need
description:
  - An action of the same name keeps the answer on the controller and asks a host only where none is kept yet.
  - So all hosts of one kind get the same versions on all days; delete the file to have them chosen anew.
author: The nodectl authors (!UNKNOWN)
options:
  folder: {description: Where the controller keeps the locks., type: path, required: true}
  python: {description: The interpreter., type: path, required: true}
  python_version: {description: Its version., type: str, required: true}
  machine: {description: As uname -m says., type: str, required: true}
  requirements: {description: Pins as name==version., type: list, elements: str, required: true}
  constraints: {description: Pins for what they need., type: list, elements: str, default: []}
  uv: {description: The uv program., type: path, required: true}
  index: {description: Package index; what it lacks comes from uv's default index., type: str, required: true}
  wheelhouse: {description: Folder or address instead of the indexes., type: str, default: ""}
  look: {description: 'Whether all of it can be had; no lock is written.', type: bool, default: false}
  controller_uv: {description: A uv of the controller for a host that has none yet., type: str, default: ""}
"""
EXAMPLES = r"""
- nodectl.fleet.python_lock:
    folder: "{{ inventory_dir }}/locks"
    python: /usr/bin/python3
    python_version: "3.12"
    machine: x86_64
    requirements: [torch==2.13.0, numpy==2.2.6]
    uv: /usr/local/bin/uv
    index: https://example.org/simple
"""
RETURN = r"""
pins: {description: Every package as name==version., type: list, returned: always}
lock: {description: The controller's file., type: str, returned: always}
"""

import os
import re
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import python_env


def pins_of(text: str) -> list[str]:
    """The lines name==version of what uv printed, without what follows a pin."""
    return [match.group(1) for match in re.finditer(r"^([A-Za-z0-9][\w.\-]*==[^\s;]+)", text, re.MULTILINE)]


def compiled(module: AnsibleModule, folder: Path) -> list[str]:
    """What uv resolves; its cache and its input lie in the folder."""
    wanted = module.params
    files = {"requirements.in": wanted["requirements"], "constraints.txt": wanted["constraints"]}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    source = python_env.source_options(wanted["wheelhouse"], wanted["index"])
    command = [wanted["uv"], "pip", "compile", "--no-header", "--no-annotate", "--quiet"]
    # an interpreter that is still to come is known by its version
    there = os.access(wanted["python"], os.X_OK)
    command += ["--python", wanted["python"]] if there else ["--python-version", wanted["python_version"]]
    command += ["--constraint", str(folder / "constraints.txt"), *source, str(folder / "requirements.in")]
    own = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "UV_CACHE_DIR": str(folder)}
    status, out, err = module.run_command(command, environ_update=own)
    if status != 0:
        text = "\n".join((out + err).strip().splitlines()[-12:])
        module.fail_json(msg=f"uv could not resolve {' '.join(wanted['requirements'])}:\n{text}")
    return pins_of(out)


def main() -> None:
    """Resolve, and change nothing."""
    text, place = {"type": "str", "required": True}, {"type": "path", "required": True}
    lines = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "folder": place,
            "python": place,
            "python_version": text,
            "machine": text,
            "requirements": {**lines, "required": True},
            "constraints": {**lines, "default": []},
            "uv": place,
            "index": text,
            "wheelhouse": {"type": "str", "default": ""},
            "look": {"type": "bool", "default": False},
            "controller_uv": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    with tempfile.TemporaryDirectory(prefix="nodectl-lock-", dir=module.tmpdir) as folder:
        module.exit_json(changed=False, pins=compiled(module, Path(folder)), lock="")


if __name__ == "__main__":
    main()
