# SPDX-License-Identifier: Apache-2.0
"""The program that watches a trial's lease on a node, and puts the former values back once nobody renews it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.undo import live, trials
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.record import settle, sweep_around
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.restore import Restore
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import Store
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import ARMED, RESTORED, RESTORING, Trial

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Sequence

POLL_S = 0.5
RETRY_S = 3.0
# where values cannot be put back for so long, the record is left to `nodectl rollback`, and the unit to the next boot
GIVE_UP_S = 3600.0
PROGRAM_S = 20.0
_BOOT_S = 300.0
_GONE_S = 5.0


def main(argv: Sequence[str]) -> int:
    """Watch the trial of this folder until it is taken off, or its values were put back."""
    trial = Trial(argv[0], os.path.dirname(os.path.dirname(argv[0])))
    lock = trial.hold()
    about = trial.about()
    if lock is None or not about:
        return 0
    store = Store(trial.root)
    if about["boot"] != trials.boot_id():
        return restore_at_boot(trial, store)
    ready()
    state = trial.state()
    why = state.get("why", "")
    if state.get("state", ARMED) == ARMED:
        if not watch(trial, about["lease_s"]):
            return 0
        why = "no sign of life from %s for %g s" % (about.get("by") or "its nodectl", about["lease_s"])
    return restore(trial, store, about["settle_s"], why, time.time())


def watch(trial: Trial, lease_s: float) -> bool:
    """Return True once nobody has renewed for so long; False if the trial was taken off.

    What counts is that the lease's text changes, measured by a clock that no operator sets.
    """
    seen, since = trial.lease(), time.monotonic()
    while True:
        time.sleep(min(POLL_S, lease_s / 10))
        if not os.path.exists(trial.path("armed.json")):
            return False
        text = trial.lease()
        if text and text != seen:
            seen, since = text, time.monotonic()
            trial.write_state(state=ARMED, seen=seen)
        elif time.monotonic() - since > lease_s:
            return True


def restore(trial: Trial, store: Store, settle_s: float, why: str, since: float) -> int:
    """Shut the trial's playbooks out, end what they run, put everything back; then look whether one came through."""
    started, written = time.monotonic(), False
    trial.write_state(state=RESTORING, since=since, why=why, errors=[])
    trial.close()
    due = True
    while True:
        due = end_marked(trial.name) > 0 or due
        errors: list[str] = []
        if due:
            errors = attempt(trial, store)
            due = bool(errors)
        if errors:
            trial.write_state(state=RESTORING, since=since, why=why, errors=errors)
        elif not written:
            trial.write_state(state=RESTORED, since=since, at=time.time(), why=why, errors=[])
            written = True
        passed_s = time.monotonic() - started
        if not errors and passed_s > settle_s:
            end(trial, store)
            return 0
        if passed_s > GIVE_UP_S:
            return 0
        time.sleep(RETRY_S if errors else min(1.0, settle_s / 4))


def restore_at_boot(trial: Trial, store: Store) -> int:
    """Files and kernel values before services read them, the rest when the boot is over."""
    since, why = time.time(), "the host was started anew in the middle of the trial"
    trial.write_state(state=RESTORING, since=since, why=why, errors=[])
    trial.close()
    attempt(trial, store, early=True)
    ready()
    until = time.monotonic() + _BOOT_S
    while not boot_is_over() and time.monotonic() < until:
        time.sleep(0.2)
    # no playbook of the trial has outlived the boot: nothing is to be waited for
    return restore(trial, store, 0.0, why, since)


def attempt(trial: Trial, store: Store, early: bool = False) -> list[str]:
    """Return what is not as before; an error on the way is one of those, and the next attempt may do better."""
    try:
        errors = put_back(store, trial.name, early)[1]
    except Exception as error:  # whatever it is, the values are not back, and giving up would leave them so
        errors = ["%s: %s" % (type(error).__name__, error)]
    # for who looks into a host that did not get its values back
    with contextlib.suppress(OSError), open(trial.path("guard.log"), "a", encoding="utf-8") as stream:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        stream.write("%s %s\n" % (now, "; ".join(errors) or "all is as before"))
    return errors


def put_back(store: Store, trial: str, early: bool = False) -> tuple[bool, list[str]]:
    """(whether anything was changed, what is not as before now); harmless to repeat, and after a cut.

    The record stays: it goes when all was looked at again. `early` at a boot leaves what only a running system can do.
    """
    with store.locked():
        if not store.exists(trial):
            return False, []
        sweep_around(store.load(trial)["before"]["paths"])
        way = way_back(store, trial, early)
        if early:
            # units that the trial brought are already waiting for their turn
            for name, state in sorted(way.before["units"].items()):
                if state.get("enabled") not in ("enabled", "enabled-runtime", "static"):
                    run(["systemctl", "--no-block", "stop", "--", name])
        changed = way.all(close=False)
        return changed, [*way.errors, *differences(way_back(store, trial, early))]


def way_back(store: Store, trial: str, early: bool) -> Restore:
    """Return the trial's record against what stands now."""
    way = Restore(store, run, [trial])
    if early:
        way.before["live"] = {}
        for state in way.before["units"].values():
            state.pop("active", None)
    return way


def differences(way: Restore) -> list[str]:
    """Return what is not as it was before; what is gone, or somebody else's by now, is not to be waited for."""
    changes = [*way.path_changes(), *way.tree_changes(), *way.unit_changes(), *way.live_changes()]
    lines = ["%s %s is not as before" % (change["what"], change["subject"]) for change in changes]
    lines += ["%s is not as before: %s" % (change["subject"], change["action"]) for change in way.value_changes()[0]]
    for key, item in sorted(way.before["live"].items()):
        if item["state"] and not way.now["live"][key]["state"]:
            lines.append("%s does not answer: whether it is as before cannot be told" % key)
    return lines


def forget(store: Store, trial: str) -> None:
    """Drop the record where all is as before; what differs stays for `nodectl rollback`."""
    with store.locked():
        settle(store, run, trial)


def end(trial: Trial, store: Store) -> None:
    """Remove the record, the unit and the trial's files but the guard's last state."""
    with contextlib.suppress(OSError):
        forget(store, trial.name)
    trials.remove_unit(run)
    trial.reduce()


def end_marked(trial: str) -> int:
    """Kill what the trial's playbooks still run here, until nothing is left of it; how many processes there were."""
    killed: set[int] = set()
    until = time.monotonic() + _GONE_S
    while True:
        pids = marked(trial)
        killed |= pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not pids or time.monotonic() > until:
            return len(killed)
        time.sleep(0.02)


def marked(trial: str) -> set[int]:
    """Return processes that were started through the trial's own Python, and their children."""
    mark, pids = ("%s=%s" % (trials.MARK, trial)).encode(), set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open("/proc/%s/environ" % name, "rb") as stream:
                if mark in stream.read().split(b"\0"):
                    pids.add(int(name))
    return pids


def run(argv: list[str], **_unused: Any) -> tuple[int, str, str]:
    """Run a program with nothing of ours around it; one that is missing, or hangs, is a status and not the end."""
    environment = {"PATH": trials.PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            argv, capture_output=True, stdin=subprocess.DEVNULL, env=environment, timeout=PROGRAM_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, "", "%s did not end in %g s" % (argv[0], PROGRAM_S)
    except OSError as error:
        return 127, "", "%s: %s" % (argv[0], error.strerror)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def boot_is_over() -> bool:
    """Return whether systemd has started what it starts by itself, or there is no systemd."""
    if not live.systemd_runs():
        return True
    return run(["systemctl", "is-system-running"])[1].strip() not in ("initializing", "starting", "")


def ready() -> None:
    """Tell systemd, where it started us: what waits for us may go on."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            stream.connect("\0" + address[1:] if address.startswith("@") else address)
            stream.sendall(b"READY=1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))  # pylint: disable=ansible-bad-function
