# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""A oneshot service of ours and what it sets: its files, each put there in one step, and the commands of a boot."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference, read_text, write_text

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    from ansible.module_utils.basic import AnsibleModule

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.held import Entry, Held

    Change = dict[str, str]
    Commands = list[list[str]]

# options of the modules that also have a boot do it; the text is left out where they only look
ARGUMENTS = {
    **{name: {"type": "path", "required": True} for name in ("program", "settings", "unit")},
    "unit_text": {"type": "str", "default": ""},
    "state": {"type": "str", "choices": ["look", "set"], "required": True},
    "trial": {"type": "str", "default": ""},
}


def program_of(source: Any) -> str:
    """Return a module that was sent along with this one as a program of its own."""
    return "#!/usr/bin/python3\n" + str(source.__loader__.get_source(source.__name__))


def set_all(
    module: AnsibleModule,
    files: Mapping[str, tuple[str, int]],
    held: Held,
    entries: Mapping[str, Entry],
    todo: Commands,
    execute: Callable[[list[str]], str],
) -> list[Change]:
    """Put the files, then the live values; what changed. A run killed between them is finished by the next.

    `todo` is run after the files have changed, `execute` runs one command and says why it failed. A trial has no
    `files`: a reboot undoes what it sets.
    """
    if not module.check_mode:
        held.begin(entries)
    changes = converge(module, os.path.basename(module.params["unit"]), files) if files else []
    if not module.check_mode:
        reasons = [reason for reason in map(execute, todo) if reason]
        if reasons:
            module.fail_json(msg="; ".join(reasons))
        held.settle(entries)
    if todo:
        changes.append(difference("live", "", "".join(" ".join(command) + "\n" for command in todo)))
    return changes


def converge(module: AnsibleModule, unit: str, files: Mapping[str, tuple[str, int]]) -> list[Change]:
    """Put each file (text and mode; empty text: no file) and enable the unit, or take all away; what changed.

    In check mode it only says so. Where the unit's text is empty it is disabled before its file goes.
    """
    unit_path = next(path for path in files if os.path.basename(path) == unit)
    wanted, changes = bool(files[unit_path][0]), []
    if not wanted and os.path.exists(unit_path):
        changes += _enable(module, unit, False)
    for path, (text, mode) in files.items():
        changes += _put(module, path, text, mode)
    if any(change["before_header"] == unit_path for change in changes) and not module.check_mode:
        module.run_command(["systemctl", "daemon-reload"], check_rc=True)
    if wanted:
        changes += _enable(module, unit, True)
    return changes


def _put(module: AnsibleModule, path: str, text: str, mode: int) -> list[Change]:
    before = read_text(path)
    right = bool(text) == os.path.exists(path) and before == text
    if right and (not text or os.stat(path).st_mode & 0o7777 == mode):
        return []
    if not module.check_mode:
        if text:
            write_text(path, text, mode)
        else:
            os.unlink(path)
    return [difference(path, before, text)]


def _enable(module: AnsibleModule, unit: str, wanted: bool) -> list[Change]:
    status, out, _unused = module.run_command(["systemctl", "is-enabled", unit])
    enabled = status == 0 and out.strip() == "enabled"
    if enabled == wanted:
        return []
    if not module.check_mode:
        # a timer counts from its start; a oneshot service of ours has just been done by the module itself
        now = ["--now"] if unit.endswith(".timer") else []
        module.run_command(["systemctl", "enable" if wanted else "disable", "--quiet", *now, unit], check_rc=True)
    states = {True: "enabled\n", False: "disabled\n"}
    return [difference(unit, states[enabled], states[wanted])]
