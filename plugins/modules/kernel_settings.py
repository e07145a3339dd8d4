#!/usr/bin/python
"""Ansible module: one sysctl drop-in and the live kernel, never lowering what the host has, and back again."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    Setting = dict[str, Any]
    Record = dict[str, dict[str, str]]
    Read = Callable[[str], tuple[str, str | None]]

DOCUMENTATION = r"""
module: kernel_settings
short_description: Keep kernel settings in one drop-in and in the live kernel
description:
  - Applies each setting live and in one file, raising the numbers of a value and never lowering them.
  - A key that this kernel view cannot hold is reported, neither failed nor written.
  - What stood before is recorded on the host; a key that is no longer wanted goes back to it.
author: The nodectl authors
options:
  settings: {description: What should be., type: list, elements: dict, required: true}
  file: {description: The drop-in., type: path, required: true}
  record: {description: Where the previous values are kept., type: path, required: true}
  root: {description: Where the kernel shows its settings., type: path, default: /proc/sys}
"""
EXAMPLES = r"""
- kernel_settings:
    settings: [{key: net.ipv4.tcp_rmem, value: 4096 87380 16777216, never_lower: true}]
    file: /etc/sysctl.d/90-nodectl.conf
    record: /var/lib/nodectl/kernel_settings.json
"""
RETURN = r"""
report: {description: Lines on what was kept or cannot be held here., type: list, returned: always}
"""

HEADER = "# Written by nodectl from the host's tuning profile; changes made here are lost.\n"


def live_path(root: str, key: str) -> Path:
    """The kernel's file for a key; after a first dot, a slash in a key stands for a dot in a name, as in sysctl.d."""
    first = next((letter for letter in key if letter in "./"), "/")
    return Path(root, key.translate(str.maketrans("./", "/.")) if first == "." else key)


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


def wanted_value(setting: Setting) -> str:
    """The setting's value as the kernel is compared with it."""
    return " ".join(str(setting["value"]).split())


def merge(present: str, wanted: str, never_lower: bool) -> str:
    """`wanted`, but with `never_lower` each number not below the one that stands there."""
    old, new = present.split(), wanted.split()
    if not never_lower or len(old) != len(new) or not all(word.lstrip("-").isdigit() for word in old + new):
        return wanted
    return " ".join(map(str, map(max, map(int, old), map(int, new))))


def kept(key: str, value: str, wanted: str) -> str:
    """The line for a value that is higher than the profile's."""
    return f"{key}: kept at {value}, the profile's {wanted} would lower it"


def plan(settings: list[Setting], record: Record, read: Read) -> tuple[dict[str, str], Record, list[str]]:
    """Pure: (live changes, new record, report); `read(key)` gives (value, reason)."""
    changes: dict[str, str] = {}
    new_record: Record = {}
    report: list[str] = []
    for setting in settings:
        key, wanted = setting["key"], wanted_value(setting)
        live, reason = read(key)
        if reason:
            report.append(f"{key}: not settable on this host ({reason})")
            continue
        # a value that we did not put there is the host's own, also when it came after ours
        known = record.get(key)
        before = known["before"] if known and known["applied"] == live else live
        effective = merge(before, wanted, setting.get("never_lower", True))
        if effective != wanted:
            report.append(kept(key, effective, wanted))
        if effective != before:
            new_record[key] = {"before": before, "applied": effective}
        if effective != live:
            changes[key] = effective
    for key in sorted(set(record) - {setting["key"] for setting in settings}):
        live, reason = read(key)
        if not reason and live == record[key]["applied"] and live != record[key]["before"]:
            changes[key] = record[key]["before"]
    return changes, new_record, report


def drop_in(record: Record) -> str:
    """The file's text; empty where there is nothing to set."""
    lines = [f"{key} = {record[key]['applied']}\n" for key in sorted(record)]
    return HEADER + "".join(lines) if lines else ""


def as_json(record: Record) -> str:
    """The record's text; empty where there is nothing to go back to."""
    return json.dumps(record, indent=2, sort_keys=True) + "\n" if record else ""


def read_text(path: Path) -> str:
    """The file's text; empty where there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def write_text(module: AnsibleModule, path: Path, text: str) -> None:
    """Put the file there in one step, or take it away where the text is empty."""
    if text == read_text(path):
        return
    if not text:
        path.unlink()
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
    Path(name).chmod(0o644)
    module.atomic_move(name, str(path))


def apply_live(module: AnsibleModule, root: str, changes: dict[str, str]) -> None:
    """Write each value into the kernel, and read it back."""
    for key, value in sorted(changes.items()):
        path = live_path(root, key)
        try:
            path.write_text(value)
        except OSError as error:
            module.fail_json(msg=f"{key}: the kernel refuses {value!r}: {error.strerror}")
        if read_live(path)[0] != value:
            module.fail_json(msg=f"{key}: wrote {value!r}, the kernel holds {read_live(path)[0]!r}")


def converge(module: AnsibleModule, wanted: list[Setting], read: Read) -> None:
    """Record first, then the file, then the kernel: a run killed between them is finished by the next."""
    path, record_path = Path(module.params["file"]), Path(module.params["record"])
    old_record = json.loads(read_text(record_path) or "{}")
    changes, record, report = plan(wanted, old_record, read)
    old, new = read_text(path), drop_in(record)
    before = "".join(f"{key} = {read(key)[0]}\n" for key in sorted(changes))
    after = "".join(f"{key} = {changes[key]}\n" for key in sorted(changes))
    if not module.check_mode:
        # until the kernel holds the new values, the record also says what the old ones go back to
        write_text(module, record_path, as_json({**old_record, **record}))
        write_text(module, path, new)
        apply_live(module, module.params["root"], changes)
        write_text(module, record_path, as_json(record))
    diff = [
        {"before_header": str(path), "after_header": str(path), "before": old, "after": new},
        {"before_header": "live kernel", "after_header": "live kernel", "before": before, "after": after},
    ]
    module.exit_json(changed=old != new or bool(changes), report=report, diff=diff)


def main() -> None:
    """Run as Ansible asks."""
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
    wanted, root = module.params["settings"], module.params["root"]

    def read(key: str) -> tuple[str, str | None]:
        return read_live(live_path(root, key))

    converge(module, wanted, read)


if __name__ == "__main__":
    main()
