#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: note on the node what stands there before a run changes it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.files import TooBigError, look, read_or
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.record import TouchesError, begin, joined, settle
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import ROOT, RUN_NAME, Store

# what templates and modules begin their files with
MARK = "Written by nodectl"


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
            "foreign": {"type": "bool", "default": False},
            "folder": {"type": "path", "default": ROOT},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    name, store = wanted["run"], Store(wanted["folder"])
    if not RUN_NAME.fullmatch(name) or name == "start":
        module.fail_json(msg="%r is no name for a run: letters, digits and ._- are" % name)
    try:
        touches = joined(wanted["touches"])
        if wanted["foreign"]:
            touches = {**joined({}), "paths": [path for path in touches["paths"] if is_foreign(path)]}
            if not touches["paths"]:
                module.exit_json(changed=False, run=name, kept=False)
            name = opened(store, touches["paths"]) or time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + name
        if not module.check_mode and (wanted["state"] == "begin" or Path(store.runs).is_dir()):
            with store.locked():
                if wanted["state"] == "begin":
                    about = {key: wanted[key] for key in ("by", "login", "version", "profiles")}
                    begin(store, module.run_command, name, about, touches)
                else:
                    settle(store, module.run_command, name)
    except (TouchesError, TooBigError) as error:
        module.fail_json(msg="what a role may change cannot be recorded: %s" % error)
    except OSError as error:
        where = error.filename or store.root
        module.fail_json(msg="nothing was changed: %s cannot be recorded: %s" % (where, error.strerror or error))
    module.exit_json(changed=False, run=name, kept=os.path.isdir(store.folder(name)))


def is_foreign(path: str) -> bool:
    """Return whether nodectl did not write the file: its first lines say so, or it lies in a folder of nodectl's."""
    folder, name = os.path.split(path)
    # a keyring has no lines
    if not os.path.isfile(path) or "nodectl" in folder.split("/") or (name.startswith("nodectl-") and ".gpg" in name):
        return False
    return MARK not in read_or(path)[:500]


def opened(store: Store, paths: list[str]) -> str:
    """Return the open or unfinished run, where it has noted none of these files in another state."""
    for name in reversed(store.names() if Path(store.runs).is_dir() else []):
        record = store.load(name)
        if not record["settled"]:
            noted = record["before"]["paths"]
            same = all(noted[path].get("sha256") == look(path).get("sha256") for path in paths if path in noted)
            return name if same else ""
    return ""


if __name__ == "__main__":
    main()
