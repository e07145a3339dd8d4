#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: note on the node what stands there before a run changes it."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import host_lock
from ansible_collections.nodectl.fleet.plugins.module_utils.files import TooBigError
from ansible_collections.nodectl.fleet.plugins.module_utils.gpu_hw import run_program
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.record import TouchesError, begin, joined, settle
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import ROOT, RUN_NAME, Store


def main() -> None:
    """Begin or settle; never `changed`, for a record is no change of what the node does."""
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["begin", "settle"], "required": True},
            "run": {"type": "str", "required": True},
            "by": text,
            "login": text,
            "version": text,
            "profiles": {"type": "dict", "default": {}},
            "touches": {"type": "dict", "default": {}},
            "folder": {"type": "path", "default": ROOT},
            "hold": {"type": "bool", "default": False},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    name, store = wanted["run"], Store(wanted["folder"])
    if not RUN_NAME.fullmatch(name) or name == "start":
        module.fail_json(msg="%r is no name for a run: letters, digits and ._- are" % name)
    if wanted["hold"] and wanted["state"] == "begin":
        mine = {"token": name, "operator": wanted["by"], "what": "ansible-playbook"}
        answer = host_lock.claim(mine, force=wanted["force"], look=module.check_mode)
        if "error" in answer:
            module.fail_json(msg=answer["error"])
        if "warning" in answer:
            module.warn(answer["warning"])
    try:
        touches = joined(wanted["touches"])
        if not module.check_mode and (wanted["state"] == "begin" or Path(store.runs).is_dir()):
            with store.locked():
                if wanted["state"] == "begin":
                    about = {key: wanted[key] for key in ("by", "login", "version", "profiles")}
                    begin(store, run_program, name, about, touches)
                else:
                    settle(store, run_program, name)
    except (TouchesError, TooBigError) as error:
        module.fail_json(msg="what a role may change cannot be recorded: %s" % error)
    except OSError as error:
        where = error.filename or store.root
        module.fail_json(msg="nothing was changed: %s cannot be recorded: %s" % (where, error.strerror or error))
    if wanted["hold"] and wanted["state"] == "settle" and not module.check_mode:
        host_lock.let_go(name)
    module.exit_json(changed=False, run=name, kept=os.path.isdir(store.folder(name)))


if __name__ == "__main__":
    main()
