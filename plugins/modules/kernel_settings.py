#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: one sysctl drop-in and the live kernel, never lowering what the host has, and back again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_settings
short_description: Keep kernel settings in one drop-in and in the live kernel
description:
  - Applies each setting live and in one file, raising the numbers of a value and never lowering them.
  - A key that this kernel view cannot hold is reported, neither failed nor written.
  - What stood before is recorded on the host; a key that is no longer wanted goes back to it.
author: The nodectl authors (!UNKNOWN)
options:
  settings:
    description: What should be.
    type: list
    elements: dict
    required: true
    suboptions:
      key: {description: Its name as sysctl has it., type: str, required: true}
      value: {description: Its value., type: str, required: true}
      never_lower: {description: A higher number that the host has is kept., type: bool, default: true}
      why: {description: The reason. Nothing reads it here., type: str}
  file: {description: The drop-in., type: path, required: true}
  record: {description: Where the previous values are kept., type: path, required: true}
  root: {description: Where the kernel shows its settings., type: path, default: /proc/sys}
"""
EXAMPLES = r"""
- nodectl.fleet.kernel_settings:
    settings: [{key: net.ipv4.tcp_rmem, value: 4096 87380 16777216, never_lower: true}]
    file: /etc/sysctl.d/90-nodectl.conf
    record: /var/lib/nodectl/kernel_settings.json
"""
RETURN = r"""
report: {description: Lines on what was kept or cannot be held here., type: list, returned: always}
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.held import Held
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import sysctl_path, write_value

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    Setting = dict[str, Any]
    Entries = dict[str, dict[str, str]]
    Read = Callable[[str], "tuple[str, str | None]"]


HEADER = "# Written by nodectl from the host's tuning profile; changes made here are lost.\n"


def read_live(path: Path) -> tuple[str, str | None]:
    """(value, None), or (value or nothing, reason) where this kernel view has no such setting or holds it read-only."""
    try:
        value = " ".join(path.read_text().split())
    except FileNotFoundError:
        return "", "absent from this kernel view"
    except OSError as error:
        return "", str(error.strerror)
    if not os.access(path, os.W_OK):
        return value, f"read-only in this kernel view, at {value}"
    return value, None


def merge(present: str, wanted: str, never_lower: bool) -> str:
    """`wanted`, but with `never_lower` each number not below the one that stands there."""
    old, new = present.split(), wanted.split()
    if not never_lower or len(old) != len(new) or not all(word.lstrip("-").isdigit() for word in old + new):
        return wanted
    return " ".join(map(str, map(max, map(int, old), map(int, new))))


def plan(settings: list[Setting], held: Held, read: Read) -> tuple[dict[str, str], Entries, dict[str, str], list[str]]:
    """Pure: (live changes, what the role then holds, the drop-in's values, report); `read(key)` gives (value, reason).

    What is asked for is always in the drop-in, also where the live kernel has it: by `sysctl -w`, it would be gone at
    the next boot.
    """
    changes: dict[str, str] = {}
    lasting: dict[str, str] = {}
    entries: Entries = {}
    report: list[str] = []
    for setting in settings:
        key, wanted = setting["key"], " ".join(str(setting["value"]).split())
        live, reason = read(key)
        if reason:
            report.append(f"{key}: not settable on this host ({reason})")
            continue
        before = held.before(key, live)
        effective = merge(before, wanted, setting.get("never_lower", True))
        if effective != wanted:
            report.append(f"{key}: kept at {effective}, the profile's {wanted} would lower it")
        lasting[key] = effective
        if effective != before:
            entries[key] = {"before": before, "after": effective}
        if effective != live:
            changes[key] = effective
    # a key that cannot be written here holds nothing that could be given back
    changes.update(
        held.unwanted(
            {setting["key"] for setting in settings}, lambda key: None if read(key)[1] is not None else read(key)[0]
        )
    )
    return changes, entries, lasting, report


def drop_in(values: dict[str, str]) -> str:
    """The file's text; empty where there is nothing to set."""
    return HEADER + as_lines(values) if values else ""


def as_lines(values: dict[str, str]) -> str:
    """`key = value` a line, as sysctl.d has it."""
    return "".join(f"{key} = {value}\n" for key, value in sorted(values.items()))


def apply_live(module: AnsibleModule, root: str, changes: dict[str, str]) -> None:
    """Write each value into the kernel, and read it back."""
    for key, value in sorted(changes.items()):
        reason = write_value(sysctl_path(key, root), value)
        if reason:
            module.fail_json(msg=f"{key}: the kernel refuses {value!r}: {reason}")


def converge(module: AnsibleModule, read: Read) -> None:
    """Record first, then the file, then the kernel: a run killed between them is finished by the next."""
    path, held = module.params["file"], Held(module.params["record"])
    changes, entries, lasting, report = plan(module.params["settings"], held, read)
    old, new = files.read_text(path), drop_in(lasting)
    before, after = as_lines({key: read(key)[0] for key in changes}), as_lines(changes)
    if not module.check_mode:
        held.begin(entries)
        if new and new != old:
            files.write_text(path, new)
        elif old and not new:
            os.unlink(path)
        apply_live(module, module.params["root"], changes)
        held.settle(entries)
    diff = [files.difference(path, old, new), files.difference("live kernel", before, after)]
    module.exit_json(changed=old != new or bool(changes), report=report, diff=diff)


def main() -> None:
    """Set what should be, and say what was kept or cannot be held here."""
    setting = {
        "key": {"type": "str", "required": True, "no_log": False},
        "value": {"type": "str", "required": True},
        "never_lower": {"type": "bool", "default": True},
        "why": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "list", "elements": "dict", "options": setting, "required": True},
            "file": {"type": "path", "required": True},
            "record": {"type": "path", "required": True},
            "root": {"type": "path", "default": "/proc/sys"},
        },
        supports_check_mode=True,
    )
    converge(module, lambda key: read_live(Path(sysctl_path(key, module.params["root"]))))


if __name__ == "__main__":
    main()
