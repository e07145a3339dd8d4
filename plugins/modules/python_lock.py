#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: what requirements bring, with versions and digests, as uv resolves it on this host today."""

from __future__ import annotations

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
