#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: arm a node for a trial, so that it puts its former values back by itself, and disarm it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.undo import guard
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import systemd_runs
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import ROOT, RUN_NAME, Store
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import ARMED, RESTORED, Trial, Trials, boot_id

START_S = 10.0


class RefusedError(Exception):
    """It cannot be done on this node, and why."""


def free(trials: Trials, store: Store, wanted: dict[str, Any]) -> dict[str, Any]:
    """Free the node for this trial; `notes` say what others left, RefusedError where another holds it."""
    notes = []
    for other in trials.all():
        state = other.state()
        if state.get("state") == RESTORED:
            notes.append("trial %s was put back by itself at %s: %s" % (other.name, moment(state["at"]), state["why"]))
        elif other.guard() is None and not store.exists(other.name):
            notes.append("trial %s of %s had left nothing to put back" % (other.name, other.holder()))
        elif not wanted["force"]:
            raise RefusedError("held by trial %s of %s: %s" % (other.name, other.holder(), outlook(other)))
        else:
            notes.append("trial %s of %s was taken off (--force)" % (other.name, other.holder()))
        take_off(other, store)
    return {"state": "free", "notes": notes}


def outlook(other: Trial) -> str:
    """Return what will become of a trial that is in the way."""
    state = other.state()
    if other.guard() is None:
        return "nobody watches it any more, so its settings stay; --force puts the former values back first"
    if state.get("state") == ARMED:
        lease_s = other.about().get("lease_s", 0)
        return "it is put back by itself %g s after its nodectl has ended; wait, or --force" % lease_s
    errors = "; ".join(state.get("errors") or ()) or "it is at it"
    return "it is being put back by itself (%s); wait, or --force" % errors


def moment(seconds: float) -> str:
    """Return the seconds since 1970 as date and time in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def take_off(trial: Trial, store: Store) -> bool:
    """Put back, look, and only then end the guard; true if anything had to be changed."""
    trial.close()
    guard.end_marked(trial.name)
    changed, errors = guard.put_back(store, trial.name)
    if errors:
        raise RefusedError("not all is as before trial %s: %s; run it again" % (trial.name, "; ".join(errors)))
    trial.end_guard(guard.run)
    if trial.there():
        trial.remove()
    guard.forget(store, trial.name)
    return changed


def arm(trials: Trials, store: Store, wanted: dict[str, Any]) -> dict[str, Any]:
    """Make the folder, then start the guard; nothing was changed yet, so a cut anywhere leaves nothing to put back."""
    trial = trials.trial(wanted["trial"])
    others = [other for other in trials.all() if other.state().get("state") != RESTORED]
    if others:
        with store.locked():  # the record that was begun in vain
            if store.exists(trial.name):
                store.drop(trial.name)
        raise RefusedError("held by trial %s of %s" % (others[0].name, others[0].holder()))
    if not store.exists(trial.name):
        raise RefusedError("there is no record of what stands here: nothing can be tried without")
    names = ("by", "what", "lease_s", "settle_s")
    about = {**{name: wanted[name] for name in names}, "since": time.time(), "boot": boot_id()}
    trial.create(about, sys.executable, wanted["uid"])
    reason = trial.start_guard(guard.run, sys.executable)
    until = time.monotonic() + START_S
    while not reason and trial.guard() is None:
        if time.monotonic() > until:
            reason = "it did not start in %g s" % START_S
        time.sleep(0.02)
    if reason:
        take_off(trial, store)
        raise RefusedError("the guard cannot be kept here: %s" % reason)
    at_boot = "unit" if systemd_runs() else "nothing"
    return {"state": ARMED, "at_boot": at_boot, "folder": trial.folder}


def guarded(trial: Trial) -> dict[str, Any]:
    """Raise RefusedError for a node that would not change itself back: not armed, or its guard acted or is gone."""
    if not trial.there():
        raise RefusedError("this host is not armed for trial %s" % trial.name)
    state = trial.state()
    if state.get("state") != ARMED:
        since = moment(state.get("since", 0))
        raise RefusedError("this host has begun to put itself back at %s: %s" % (since, state.get("why", "")))
    if trial.guard() is None:
        raise RefusedError("nobody watches this host any more: its guard has ended; nothing was changed")
    return {"state": ARMED}


def off(trial: Trial, store: Store) -> tuple[bool, dict[str, Any]]:
    """(whether anything had to be changed, what became of the trial)."""
    state = trial.state()
    if not trial.there() and not store.exists(trial.name):
        return False, {"state": "gone"}
    changed = take_off(trial, store)
    by_itself = state.get("state", ARMED) != ARMED
    details = {name: state[name] for name in ("since", "at", "why", "errors") if name in state}
    return changed, {"state": "by itself" if by_itself else "off", **details}


def main() -> None:
    """Under the lock of this node's trials."""
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["free", "armed", "guarded", "off"], "required": True},
            "trial": {"type": "str", "required": True},
            "by": text,
            "what": text,
            "uid": {"type": "int", "default": 0},
            "lease_s": {"type": "float", "default": 60.0},
            "settle_s": {"type": "float", "default": 30.0},
            "force": {"type": "bool", "default": False},
            "folder": {"type": "path", "default": ROOT},
        },
    )
    wanted = module.params
    if not RUN_NAME.fullmatch(wanted["trial"]) or wanted["trial"] == "start":
        module.fail_json(msg="%r is no name for a trial: letters, digits and ._- are" % wanted["trial"])
    trials, store, changed = Trials(wanted["folder"]), Store(wanted["folder"]), False
    trial = trials.trial(wanted["trial"])
    try:
        with trials.locked():
            if wanted["state"] == "off":
                changed, answer = off(trial, store)
            elif wanted["state"] == "guarded":
                answer = guarded(trial)
            else:
                answer = (free if wanted["state"] == "free" else arm)(trials, store, wanted)
    except RefusedError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg="%s: %s" % (error.filename or os.path.join(store.root, "trials"), error.strerror or error))
    module.exit_json(changed=changed, trial=answer, findings=[])


if __name__ == "__main__":
    main()
