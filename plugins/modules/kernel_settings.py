#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: one sysctl drop-in and the live kernel, and back again."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import files, kernel_values
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.held import Held
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import sysctl_path, warn_not_settable, write_value
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import changing

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import Trial

    Setting = dict[str, Any]
    Entries = dict[str, dict[str, str]]


HEADER = "# Written by nodectl from the host's tuning profile; changes made here are lost.\n"
READ_ONLY = "read-only"
NO_KEY = "no key"


class Live(NamedTuple):
    """A key as the kernel shows it; if it cannot be set, `kind` is READ_ONLY, NO_KEY or as `absence` has it."""

    value: str
    kind: str = ""
    reason: str = ""


class Plan(NamedTuple):
    """Live changes, what the role then holds, the drop-in's values, and what is said of the rest."""

    changes: dict[str, str]
    entries: Entries
    lasting: dict[str, str]
    report: list[str]
    warnings: list[str]
    refusals: list[str]


def read_live(key: str, root: str) -> Live:
    """Return the key's value, or why it cannot be set here."""
    path, wrong = Path(sysctl_path(key, root)), kernel_values.why_no_key(key)
    if wrong or path.is_dir():
        return Live("", NO_KEY, wrong or "it is a folder of settings; name those in it that are meant")
    try:
        value = " ".join(path.read_text().split())
    except FileNotFoundError:
        first = os.path.exists(sysctl_path(kernel_values.FIRST_NAMESPACE, root))
        return Live("", *kernel_values.absence(key, path.parent.is_dir(), first))
    except OSError as error:
        return Live("", READ_ONLY, f"it cannot be read: {error.strerror}")
    if not os.access(path, os.W_OK):
        return Live(value, READ_ONLY, f"it is read-only here, at {value}")
    return Live(value)


def plan(settings: list[Setting], held: Held, read: Callable[[str], Live], trial: bool = False) -> Plan:
    """Pure: what these settings make of a host of which `read(key)` is the state.

    What is asked for is always in the drop-in, also where the live kernel has it: by `sysctl -w`, it would be gone at
    the next boot.
    """
    done = Plan({}, {}, {}, [], [], [])
    keys = [setting["key"] for setting in settings]
    done.refusals.extend(f"{key}: it stands twice; leave one" for key in sorted(set(keys)) if keys.count(key) > 1)
    for setting in settings:
        key, wanted = setting["key"], " ".join(str(setting["value"]).split())
        live = read(key)
        if live.kind == kernel_values.UNKNOWN:
            done.refusals.append(f"{key}: {live.reason}; correct its name, or load first what brings it")
        elif live.kind == NO_KEY:
            done.refusals.append(f"{key} is no kernel setting: {live.reason}")
        elif live.kind == kernel_values.LATER and trial:
            done.refusals.append(f"{key}: a trial sets live values only, and {live.reason}; load or create it first")
        elif live.kind == kernel_values.LATER:
            done.lasting[key] = wanted
            done.report.append(f"{key}: {wanted} is written for the next boot only, because {live.reason}")
        elif live.kind:
            done.warnings.append(f"{key}: {wanted} is not written: {live.reason}")
        else:
            _set(done, key, wanted, setting.get("never_lower", False), live.value, held.before(key, live.value))
    # a key that cannot be written here holds nothing that could be given back
    done.changes.update(
        held.unwanted({setting["key"] for setting in settings}, lambda key: None if read(key).kind else read(key).value)
    )
    return done


def _set(done: Plan, key: str, wanted: str, never_lower: bool, live: str, before: str) -> None:
    effective = kernel_values.raised(before, wanted, never_lower)
    if effective != wanted:
        done.report.append(f"{key}: kept at {effective}; {wanted} would lower it, and the setting says never_lower")
    done.lasting[key] = effective
    if effective != before:
        done.entries[key] = {"before": before, "after": effective}
    if effective != live:
        done.changes[key] = effective


def as_lines(values: dict[str, str]) -> str:
    """`key = value` a line, as sysctl.d has it."""
    return "".join(f"{key} = {value}\n" for key, value in sorted(values.items()))


def apply_live(root: str, changes: dict[str, str], former: dict[str, str]) -> str:
    """Write each value into the kernel, and read it back; why it refuses one, where what was written is put back."""
    written = []
    for key, value in sorted(changes.items()):
        written.append(key)
        reason = write_value(sysctl_path(key, root), value)
        if reason:
            for changed in written:
                write_value(sysctl_path(changed, root), former[changed])
            return f"{key}: the kernel refuses {value!r}: {reason}"
    return ""


def overruled(file: str, text: str, settings: list[Setting]) -> list[str]:
    """Return what other files have the next boot set otherwise than `text`, which this file is to hold."""
    folder = os.path.dirname(file)
    folders = (folder, *kernel_values.FOLDERS[1:])
    paths = [path for place in folders for path in sorted(glob.glob(os.path.join(glob.escape(place), "*.conf")))]
    paths += [os.path.join(os.path.dirname(folder), os.path.basename(kernel_values.LAST))]
    lines = {path: files.read_or(path).splitlines() for path in paths}
    values = kernel_values.boot_values({**lines, file: text.splitlines()}, folders)
    ours = kernel_values.boot_values({file: text.splitlines()}, folders)
    warnings = []
    for setting in settings:
        path = kernel_values.proc_path(setting["key"])
        value, last = values.get(path, ("", file))
        mine = ours.get(path, (value, file))[0]
        if last != file and not kernel_values.is_held(value, mine, setting.get("never_lower", False)):
            until = f"{mine} holds until the next boot, which sets {value} by {last}"
            warnings.append(f"{setting['key']}: {until}: take {setting['key']} out of that file")
    return warnings


def converge(module: AnsibleModule, read: Callable[[str], Live], trial: Trial | None) -> None:
    """Record, then set the kernel, then write the file; a run killed between them is finished by the next.

    The file never has what the kernel refuses. In a trial there is no file: a reboot undoes what is set.
    """
    path, record = module.params["file"], module.params["record"]
    held = Held(trial.record(record) if trial else record)
    changes, entries, lasting, report, warnings, refusals = plan(module.params["settings"], held, read, bool(trial))
    if refusals:
        module.fail_json(msg="; ".join(refusals) + ": nothing was changed")
    warn_not_settable(module, warnings)
    former = {key: read(key).value for key in changes}
    if not module.check_mode:
        before = dict(held.entries)
        if trial:
            root = module.params["root"]
            trial.keep({sysctl_path(key, root): value for key, value in former.items()}, {})
        held.begin(entries)
        reason = apply_live(module.params["root"], changes, former)
        if reason:
            held.settle(before)
            module.fail_json(msg=f"{reason}: nothing was changed")
    diff = [files.difference("live kernel", as_lines(former), as_lines(changes))]
    if not trial:
        diff = [*write_file(module, path, HEADER + as_lines(lasting) if lasting else ""), *diff]
    if not module.check_mode:
        held.settle(entries)
    module.exit_json(changed=any(part["before"] != part["after"] for part in diff), report=report, diff=diff)


def write_file(module: AnsibleModule, path: str, new: str) -> list[dict[str, str]]:
    """Write the drop-in, or remove it if it has nothing to say; return the difference."""
    old = files.read_text(path)
    if not module.check_mode:
        if new and new != old:
            files.write_text(path, new)
        elif old and not new:
            os.unlink(path)
    for warning in overruled(path, new, module.params["settings"]):
        module.warn(warning)
    return [files.difference(path, old, new)]


def main() -> None:
    """Set what should be, and say what was kept, comes later or cannot be held here."""
    setting = {
        "key": {"type": "str", "required": True, "no_log": False},
        "value": {"type": "str", "required": True},
        "never_lower": {"type": "bool", "default": False},
        "why": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "list", "elements": "dict", "options": setting, "required": True},
            "file": {"type": "path", "required": True},
            "record": {"type": "path", "required": True},
            "root": {"type": "path", "default": "/proc/sys"},
            "trial": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    for setting in module.params["settings"]:
        setting["key"] = kernel_values.dotted(setting["key"])
    with changing(module) as trial:
        converge(module, lambda key: read_live(key, module.params["root"]), trial)


if __name__ == "__main__":
    main()
