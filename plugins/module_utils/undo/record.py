# SPDX-License-Identifier: Apache-2.0
"""A run's record: what its roles may change, as it stands before the first change, and what had changed at the end."""

from __future__ import annotations

import glob
import os
import re
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files, node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import held, live
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import SECTIONS, Store, empty

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Record = dict[str, Any]
    Touches = dict[str, Any]

LISTS = ("paths", "trees", "units", "values", "sysctls", "held", "live")


class TouchesError(Exception):
    """A role's `_touches` is malformed."""


def joined(declared: dict[str, Touches]) -> Touches:
    """One list a kind from all roles' declarations; a typo is refused with the variable's name."""
    result: Touches = {name: [] for name in LISTS}
    result["packages"] = False
    for variable, touches in sorted(declared.items()):
        if not isinstance(touches, dict):
            raise TouchesError("%s is %r: make it a mapping of lists" % (variable, touches))
        for name, value in touches.items():
            if name == "packages":
                result[name] = result[name] or value in (True, "true", "True", "yes")
            elif name not in LISTS or not isinstance(value, list):
                names = ", ".join((*LISTS, "packages"))
                raise TouchesError("%s.%s: lists named %s are known" % (variable, name, names))
            else:
                result[name] += [item for item in value if item not in result[name]]
    for path in [*result["paths"], *result["trees"]]:
        if not isinstance(path, str) or not path.startswith("/") or os.path.normpath(path) != path or path == "/":
            raise TouchesError("paths and trees are absolute and plain, not %r" % (path,))
    return result


def look(run: Run, touches: Touches) -> Record:
    """How everything stands that the touches name, with what roles hold by now and may give back."""
    state = empty()
    paths = [path for tree in touches["trees"] for path in files.above(tree)]
    for named in touches["paths"]:
        for pattern in sorted(glob.glob(named)) if glob.has_magic(named) else [named]:
            paths += files.with_surroundings(pattern)
        if glob.has_magic(named):
            paths.append(os.path.dirname(named))
    state["paths"] = {path: files.look(path) for path in dict.fromkeys(paths)}
    state["trees"] = {path: files.look_tree(path) for path in touches["trees"]}
    values, items = held.touched(touches["held"])
    values += [*touches["values"], *map(live.sysctl_path, touches["sysctls"])]
    state["units"] = live.look_units(run, touches["units"])
    state["values"] = live.look_values(values)
    for item in [*touches["live"], *items]:
        # `rings eth0`, `gpu`
        key = " ".join([item["kind"], *(str(item[name]) for name in sorted(item) if name != "kind")])
        state["live"][key] = {**item, "state": live.look_live(run, item)}
    if touches["packages"]:
        state["packages"] = node_packages.kind().installed_now()
    return state


def look_again(run: Run, before: Record) -> Record:
    """How everything stands now that a record names, with what is new in its folders and among its packages."""
    paths = {path: files.look(path) for path in before["paths"]}
    for path, entry in before["paths"].items():
        # only of folders that a role owns wholly, also those that it made
        if entry.get("whole"):
            paths.update({below: files.look(below) for below in files.with_surroundings(path)})
    items = {key: {name: item[name] for name in item if name != "state"} for key, item in before["live"].items()}
    return {
        "paths": paths,
        "trees": {path: files.look_tree(path) for path in before["trees"]},
        "units": live.look_units(run, sorted(before["units"])),
        "values": {path: live.read_value(path) for path in before["values"]},
        "live": {key: {**item, "state": live.look_live(run, item)} for key, item in items.items()},
        "packages": node_packages.kind().installed_now() if before["packages"] else {},
    }


def begin(store: Store, run: Run, name: str, about: Record, touches: Touches) -> None:
    """Note what stands there; what an earlier play of this run noted is not noted again."""
    for other in store.names():
        if other != name and not store.load(other).get("settled"):
            settle(store, run, other)
    state = look(run, touches)
    for path in touches["paths"]:
        if state["paths"].get(path, {}).get("kind") in ("dir", "absent"):
            state["paths"][path]["whole"] = True
    if not store.exists(name):
        newest = [store.load(other)["seq"] for other in store.names()][-1:]
        record = {"seq": (newest or [0])[0] + 1, "settled": False, "before": state, "after": {}}
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        store.create(name, {**about, "run": name, "started": started}, record, contents_of(state))
        return
    record = store.load(name)
    fresh: Record = {}
    for section in SECTIONS:
        recorded = record["before"][section]
        # packages are noted at once: those that are new since are this run's own; a settled record holds a few of them
        late = section == "packages" and recorded and not record["settled"]
        fresh[section] = {} if late else {key: state[section][key] for key in state[section] if key not in recorded}
    merged = {section: {**record["before"][section], **fresh[section]} for section in SECTIONS}
    if merged != record["before"] or record["settled"]:
        record.update(before=merged, settled=False, after={})
        store.extend(name, record, contents_of(fresh))


def contents_of(state: Record) -> dict[str, str]:
    """{sha256: path} of the files whose content is to be kept."""
    return {entry["sha256"]: path for path, entry in state["paths"].items() if entry["kind"] == "file"}


def settle(store: Store, run: Run, name: str) -> bool:
    """Keep what differs from its record, with how the run left it; a run that changed nothing leaves no folder."""
    if not store.exists(name):
        return False
    record = store.load(name)
    if record["settled"]:
        return True
    sweep_around(record["before"]["paths"])
    record = closed(run, record)
    if not any(record["before"].values()):
        store.drop(name)
        return False
    store.extend(name, record, {})
    used = {entry.get("sha256") for entry in record["before"]["paths"].values()}
    for digest in os.listdir(os.path.join(store.folder(name), "files")):
        if digest not in used:
            os.unlink(store.content(name, digest))
    return True


def closed(run: Run, record: Record) -> Record:
    """Return the record as it is settled: only what differs, before and after."""
    if record["settled"]:
        return record
    before, now = record["before"], look_again(run, record["before"])
    kept: Record = {"before": empty(), "after": empty()}
    for section in SECTIONS:
        absent = {"kind": "absent"} if section == "paths" else None
        for key in sorted({**before[section], **now[section]}):
            old, new = before[section].get(key, absent), now[section].get(key, absent)
            if (plain(old) if section == "paths" else old) != new:
                kept["before"][section][key], kept["after"][section][key] = old, new
    return {**record, **kept, "settled": True}


def plain(entry: Record) -> Record:
    """Return a recorded path's entry as one that is looked at."""
    return {name: entry[name] for name in entry if name != "whole"}


def sweep_around(paths: Record) -> None:
    """Remove what a killed module left beside the files that it was to replace."""
    names = {(os.path.dirname(path), os.path.basename(path)) for path in paths}
    for folder in {folder for folder, _unused in names}:
        for left in glob.glob(os.path.join(glob.escape(folder), ".ansible_tmp*")):
            match = re.fullmatch(r"\.ansible_tmp[a-z0-9_]{8}(.+)", os.path.basename(left))
            if match and (folder, match.group(1)) in names:
                files.remove(left)
        files.sweep(folder)
