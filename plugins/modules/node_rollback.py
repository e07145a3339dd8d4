#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: a node's state as an earlier run left it, from the node's own records."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import trials
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.record import closed, settle
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.restore import Restore, chosen
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import ROOT, RUN_NAME, SECTIONS, START, Store

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

DIFF_BYTES = 65536


def listed(store: Store, run: Run) -> list[dict[str, Any]]:
    """Each run that changed something: who, when, profiles, and how much of each kind, oldest first.

    Of a run that was not finished it is what differs by now.
    """
    rows = []
    for name in store.names():
        record, about = store.load(name), files.read_json(os.path.join(store.folder(name), "run.json"))
        before = closed(run, record)["before"]
        changed = {section: len(before[section]) for section in SECTIONS if before[section]}
        if record["settled"] or changed:
            left = record.get("left", False)
            rows.append({**about, "run": name, "changed": changed, "settled": record["settled"], "left": left})
    return rows


def shown(way: Restore) -> dict[str, Any]:
    """Return the plan for people and programs."""
    packages, kept = way.package_changes()
    values, warnings = way.value_changes()
    paths = [*way.path_changes(), *way.tree_changes()]
    changes = [*way.unit_changes(), *paths, *packages, *values, *way.live_changes()]
    folder = os.path.join(way.store.undone, way.runs[-1], "conflicts") if way.runs else ""
    for change in changes:
        if change.get("conflict"):
            warnings.append("%s was changed since: that version is kept in %s" % (change["subject"], folder))
    driver = sorted(key for key, why in kept.items() if why == "driver")
    if driver:
        warnings.append("packages of the GPU driver stay (--packages takes them back): %s" % ", ".join(driver))
    warnings += ["package %s stays, %s" % (key, why) for key, why in sorted(kept.items()) if why != "driver"]
    brief = [{name: change[name] for name in ("what", "subject", "action")} for change in changes]
    return {"runs": way.runs, "changes": brief, "warnings": warnings, "kept": sorted(kept)}


def text_of(path: str) -> str:
    """Return a small text file's content for a diff."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(DIFF_BYTES + 1)
        return data.decode() if len(data) <= DIFF_BYTES else "(%d bytes)\n" % os.stat(path).st_size
    except (OSError, UnicodeDecodeError):
        return ""


def diff(way: Restore, changes: list[dict[str, str]]) -> list[dict[str, str]]:
    """File by file, and everything else as lines."""
    result = []
    for change in way.path_changes():
        path, old = change["subject"], way.before["paths"][change["subject"]]
        after = text_of(way.content(old["sha256"])) if old["kind"] == "file" else ""
        result.append(difference(path, text_of(path), after))
    lines = ["%(what)s %(subject)s: %(action)s\n" % change for change in changes if change["what"] != "path"]
    return [*result, difference("node", "", "".join(lines))] if lines else result


def main() -> None:
    """List the runs, show the way back, or go it."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["runs", "look", "undone"], "required": True},
            "to": {"type": "str", "default": ""},
            "packages": {"type": "bool", "default": False},
            "folder": {"type": "path", "default": ROOT},
            "trials": {"type": "path", "default": trials.ROOT},
        },
        supports_check_mode=True,
    )
    state, to, store = module.params["state"], module.params["to"], Store(module.params["folder"])
    if to and not RUN_NAME.fullmatch(to):
        module.fail_json(msg="%r is no name of a run" % to)
    if not os.path.isdir(store.runs):
        empty: dict[str, Any] = {"runs": [], "known": to in ("", START), "changes": [], "warnings": [], "kept": []}
        module.exit_json(changed=False, rollback=empty)
    try:
        with store.locked():
            work(module, store, state, to)
    except OSError as error:
        module.fail_json(msg="%s" % error)


def work(module: AnsibleModule, store: Store, state: str, to: str) -> None:
    """Do what the state asks for, under the store's lock; the module ends here."""
    is_known = to in ("", START) or to in store.names()
    if state == "runs":
        module.exit_json(changed=False, rollback={"runs": listed(store, module.run_command), "known": is_known})
    acts = state == "undone" and not module.check_mode
    if acts:
        trials.restored(module, trials.others(trials.Trial("", module.params["trials"])))
        # a run that was killed is closed first: what it left is known then
        for name in store.names():
            settle(store, module.run_command, name)
    names = [row["run"] for row in listed(store, module.run_command)]
    runs = chosen(store, names, to, module.params["packages"])
    way = Restore(store, module.run_command, runs, module.params["packages"])
    plan = {**shown(way), "known": is_known}
    answer: dict[str, Any] = {"changed": bool(plan["changes"]), "rollback": plan}
    if module._diff and runs:
        answer["diff"] = diff(way, plan["changes"])
    if state == "look":
        answer["changed"] = False
    elif acts and runs:
        answer["changed"] = way.all()
        plan["warnings"] += [line for line in way.warnings if line not in plan["warnings"]]
        if way.errors:
            module.fail_json(msg="not all came back; run it again. %s" % "; ".join(way.errors), **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
