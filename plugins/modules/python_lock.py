#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: what requirements bring, with versions and digests, as uv resolves it on this host today."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_lock
short_description: Versions and digests of all that pinned requirements need
description:
  - An action of the same name resolves on the controller, with its own uv, and keeps the answer there.
  - It asks a host where the controller cannot know, as of a wheelhouse that is a folder on the host. A host's answer is
    taken as name==version with digests or not at all; each host installs what its own index has under these digests.
  - All hosts of one kind get the same files on all days; delete the lock to have versions chosen anew.
author: The nodectl authors (!UNKNOWN)
options:
  folder: {description: Where the controller keeps the locks., type: path, required: true}
  python: {description: The interpreter., type: path, required: true}
  python_version: {description: Its version., type: str, required: true}
  machine: {description: As uname -m says., type: str, required: true}
  requirements: {description: Pins as name==version., type: list, elements: str, default: []}
  wheel: {description: A wheel on the controller whose requirements are meant., type: path, default: ""}
  constraints: {description: Pins for what they need., type: list, elements: str, default: []}
  uv: {description: The uv program., type: path, required: true}
  index: {description: Package index; what it lacks comes from uv's default index., type: str, required: true}
  index_packages:
    description: What comes from the index alone, while all else comes from uv's default index.
    type: list
    elements: str
    default: []
  wheelhouse: {description: Folder or address instead of the indexes., type: str, default: ""}
  look: {description: 'Whether all of it can be had; no lock is written.', type: bool, default: false}
  controller_uv: {description: A uv of the controller; a look copies it to the host., type: str, default: ""}
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
requirements: {description: What was resolved., type: list, returned: always}
locked: {description: The same with the digests of its files., type: list, returned: always}
lock: {description: The controller's file., type: str, returned: always}
"""

import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import python_lock


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
            "requirements": {**lines, "default": []},
            "wheel": {"type": "path", "default": ""},
            "constraints": {**lines, "default": []},
            "uv": place,
            "index": text,
            "index_packages": {**lines, "default": []},
            "wheelhouse": {"type": "str", "default": ""},
            "look": {"type": "bool", "default": False},
            "controller_uv": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = module.params

    def run(argv: list[str], env: dict[str, str]) -> tuple[int, str, str]:
        status, out, err = module.run_command(argv, environ_update=env)
        return int(status), str(out), str(err)

    target = ["--generate-hashes", *python_lock.interpreter(wanted["python"], wanted["python_version"])]
    with tempfile.TemporaryDirectory(prefix="nodectl-lock-", dir=module.tmpdir) as folder:
        try:
            locked = python_lock.resolve(run, wanted["uv"], Path(folder), wanted, target)
        except python_lock.LockError as error:
            module.fail_json(msg=str(error))
    module.exit_json(changed=False, locked=locked, pins=[line.partition(" ")[0] for line in locked], lock="")


if __name__ == "__main__":
    main()
