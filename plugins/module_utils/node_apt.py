"""Packages put back by apt in one transaction, after a simulation that may remove nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.node_live import Run

    Change = dict[str, Any]

APT = ["apt-get", "-y", "-q", "--purge", "--no-install-recommends"]
OPTIONS = [
    *("--allow-downgrades", "--allow-change-held-packages"),
    *("-o", "APT::Get::AutomaticRemove=false", "-o", "Dpkg::Options::=--force-confold"),
]
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "APT_LISTCHANGES_FRONTEND": "none", "NEEDRESTART_SUSPEND": "1"}
CUT_OFF = {"half-configured", "unpacked", "half-installed", "triggers-awaited", "triggers-pending"}


def put_back(run: Run, changes: list[Change]) -> list[str]:
    """Remove, install and mark; the reasons for what could not be."""
    if not changes:
        return []
    if any(package["state"] in CUT_OFF for package in node_packages.installed_now().values()):
        status, out, err = run(["dpkg", "--configure", "-a"], environ_update=ENVIRONMENT)
        if status != 0:
            return ["dpkg --configure -a ended with %d: %s" % (status, last(err or out))]
    words, errors = wanted_words(run, changes)
    if words:
        refused = extra_removals(run, words, {change["subject"].partition(":")[0] for change in changes})
        if refused:
            return [*errors, refused]
        status, out, err = run([*APT, *OPTIONS, "install", *words], environ_update=ENVIRONMENT)
        if status != 0:
            return [*errors, "apt-get ended with %d: %s" % (status, last(err or out))]
    gone = [change["subject"] for change in changes if change["before"] is None]
    present = node_packages.installed_now()
    left = [key for key in gone if present.get(key, {}).get("state") == "config-files"]
    if left:
        run(["dpkg", "--purge", *left], environ_update=ENVIRONMENT)
    return [*errors, *marks(run, changes)]


def wanted_words(run: Run, changes: list[Change]) -> tuple[list[str], list[str]]:
    """(apt-get's words, what apt no longer has)."""
    words, errors = [], []
    for change in changes:
        old, new, key = change["before"], change["now"], change["subject"]
        if not node_packages.there(old):
            words += [key + "-"] if node_packages.there(new) else []
        elif not node_packages.there(new) or new["version"] != old["version"]:
            pinned = "%s=%s" % (key, old["version"])
            if old["version"] in offered(run, key):
                words.append(pinned)
            else:
                errors.append("%s: apt no longer has it; add its repository, then roll back again" % pinned)
    return words, errors


def offered(run: Run, name: str) -> set[str]:
    """The versions that apt's repositories have; `apt-cache show` also knows those that are only installed."""
    lines = run(["apt-cache", "madison", name])[1].splitlines()
    return {line.split("|")[1].strip() for line in lines if line.count("|") >= 2}


def extra_removals(run: Run, words: list[str], expected: set[str]) -> str:
    """Why apt's own plan is not followed; empty where it removes nothing but what is expected."""
    status, out, err = run([*APT, *OPTIONS, "--simulate", "install", *words], environ_update=ENVIRONMENT)
    if status != 0:
        return "apt-get --simulate ended with %d: %s" % (status, last(err or out))
    extra = sorted(set(re.findall(r"^(?:Remv|Purg) ([^\s:]+)", out, re.MULTILINE)) - expected)
    return (
        "apt would also remove %s, which nodectl did not install: nothing was removed" % ", ".join(extra)
        if extra
        else ""
    )


def marks(run: Run, changes: list[Change]) -> list[str]:
    """Holds and manual marks as they were."""
    errors = []
    present = node_packages.installed_now()
    todo: dict[str, list[str]] = {}
    for change in changes:
        old, new, key = change["before"], present.get(change["subject"]), change["subject"]
        if not node_packages.there(old) or new is None:
            continue
        if old["selection"] != new["selection"] and "hold" in (old["selection"], new["selection"]):
            todo.setdefault("hold" if old["selection"] == "hold" else "unhold", []).append(key)
        if old["auto"] != new["auto"]:
            todo.setdefault("auto" if old["auto"] else "manual", []).append(key)
    for verb, keys in sorted(todo.items()):
        status, out, err = run(["apt-mark", verb, *keys])
        if status != 0:
            errors.append("apt-mark %s ended with %d: %s" % (verb, status, last(err or out)))
    return errors


def last(text: str) -> str:
    """The last lines of what a program said."""
    return " ".join(text.strip().splitlines()[-3:])
