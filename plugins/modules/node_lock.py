#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: hold a node for one run, so that nobody else changes or measures it meanwhile."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import host_lock


def main() -> None:
    """Take it or let go of it; never `changed`."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "free"], "required": True},
            "run": {"type": "str", "required": True},
            "by": {"type": "str", "default": ""},
            "what": {"type": "str", "default": "ansible-playbook"},
            "force": {"type": "bool", "default": False},
            "folder": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if wanted["state"] == "free":
        if not module.check_mode:
            host_lock.let_go(wanted["run"])
        module.exit_json(changed=False, held=False)
    mine = {"token": wanted["run"], "operator": wanted["by"], "what": wanted["what"]}
    answer = host_lock.claim(mine, wanted["folder"], force=wanted["force"], look=module.check_mode)
    if "error" in answer:
        module.fail_json(msg=answer.pop("error"), **answer)
    if "warning" in answer:
        module.warn(answer.pop("warning"))
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
