#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: whole files that a role owns, with the folders above them, in one step each."""

from __future__ import annotations

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.files import (
    ABSENT,
    difference,
    look,
    read_text,
    remove,
    write_text,
)


def main() -> None:
    """Write what differs, remove what should be absent."""
    file = {
        "path": {"type": "path", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "default": [], "options": file},
            "folders": {"type": "list", "elements": "path", "default": []},
            "absent": {"type": "list", "elements": "path", "default": []},
            "backup": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    written, removed, diff = [], [], []
    for wanted in module.params["files"]:
        path, text = wanted["path"], wanted["content"]
        mode = int(wanted["mode"] or ("0755" if text.startswith("#!") else "0644"), 8)
        mine = {"kind": "file", "uid": os.geteuid(), "gid": os.getegid(), "mode": "%04o" % mode}
        before = look(path)
        if before["kind"] == "dir":
            module.fail_json(msg="%s is a folder, and a file belongs there: move it away" % path)
        if {**before, "sha256": ""} == {**mine, "sha256": ""} and read_text(path) == text:
            continue
        written.append(path)
        diff.append(difference(path, read_text(path) if before["kind"] == "file" else "", text))
        if not module.check_mode:
            if module.params["backup"] and before["kind"] == "file":
                module.backup_local(path)
            write_text(path, text, mode)
    for path in module.params["folders"]:
        if not os.path.isdir(path):
            written.append(path)
            diff.append(difference(path, "absent\n", "present\n"))
            if not module.check_mode:
                os.makedirs(path, mode=0o755)
    for path in module.params["absent"]:
        if look(path) != ABSENT:
            removed.append(path)
            diff.append(difference(path, "present\n", "absent\n"))
            if not module.check_mode:
                remove(path)
    module.exit_json(changed=bool(written or removed), written=written, removed=removed, diff=diff)


if __name__ == "__main__":
    main()
