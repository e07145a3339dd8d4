"""The program that watches a trial's lease on a node, and puts the former values back once nobody renews it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import trial_restore, trial_unit
from ansible_collections.nodectl.fleet.plugins.module_utils.node_store import Store
from ansible_collections.nodectl.fleet.plugins.module_utils.trial_store import (
    ARMED,
    RESTORED,
    RESTORING,
    Trial,
    boot_id,
)

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Sequence

POLL_S = 0.5
RETRY_S = 3.0
# where values cannot be put back for so long, the record is left to `nodectl rollback`, and the unit to the next boot
GIVE_UP_S = 3600.0
_BOOT_S = 300.0


def main(argv: Sequence[str]) -> int:
    """Watch the trial of this folder until it is taken off, or its values were put back."""
    trial = Trial(argv[0], os.path.dirname(os.path.dirname(argv[0])))
    held = trial.hold()
    if held is None:
        return 0
    about = trial.about()
    if not about:
        return 0
    store = Store(trial.root)
    if about["boot"] != boot_id():
        return restore_at_boot(trial, store)
    ready()
    said = trial.said()
    if said.get("state", ARMED) == ARMED:
        if not watch(trial, about["lease_s"]):
            return 0
        return restore(
            trial, store, about["settle_s"], "no sign of life from %s for %g s" % (by(trial), about["lease_s"])
        )
    return restore(trial, store, about["settle_s"], said.get("why", ""))


def by(trial: Trial) -> str:
    """Whose nodectl it was."""
    return str(trial.about().get("by") or "its nodectl")


def watch(trial: Trial, lease_s: float) -> bool:
    """True once nobody has renewed for so long; False where the trial was taken off.

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
            trial.say(state=ARMED, seen=seen)
        elif time.monotonic() - since > lease_s:
            return True


def restore(trial: Trial, store: Store, settle_s: float, why: str) -> int:
    """Shut the trial's playbooks out, end what they run, put everything back; then look whether one came through."""
    since, started, told = time.time(), time.monotonic(), False
    trial.say(state=RESTORING, since=since, why=why, errors=[])
    trial.close()
    due = True
    while True:
        due = trial_restore.end_marked(trial.name) > 0 or due
        errors: list[str] = []
        if due:
            errors = attempt(store, trial.name)
            due = bool(errors)
            log(trial, "; ".join(errors) or "all is as before")
        if errors:
            trial.say(state=RESTORING, since=since, why=why, errors=errors)
        elif not told:
            trial.say(state=RESTORED, since=since, at=time.time(), why=why, errors=[])
            told = True
        passed_s = time.monotonic() - started
        if not errors and passed_s > settle_s:
            return end(trial, store)
        if passed_s > GIVE_UP_S:
            return 0
        time.sleep(RETRY_S if errors else min(1.0, settle_s / 4))


def restore_at_boot(trial: Trial, store: Store) -> int:
    """Files and kernel values before services read them, the rest when the boot is over."""
    why = "the host was started anew in the middle of the trial"
    since = time.time()
    trial.say(state=RESTORING, since=since, why=why, errors=[])
    trial.close()
    attempt(store, trial.name, early=True)
    ready()
    until = time.monotonic() + _BOOT_S
    while not trial_restore.boot_is_over() and time.monotonic() < until:
        time.sleep(0.2)
    until = time.monotonic() + GIVE_UP_S
    while True:
        errors = attempt(store, trial.name)
        log(trial, "; ".join(errors) or "all is as before")
        if not errors:
            trial.say(state=RESTORED, since=since, at=time.time(), why=why, errors=[])
            return end(trial, store)
        trial.say(state=RESTORING, since=since, why=why, errors=errors)
        if time.monotonic() > until:
            return 0
        time.sleep(RETRY_S)


def attempt(store: Store, name: str, early: bool = False) -> list[str]:
    """What is not as before; an error on the way is one of those, and the next attempt may do better."""
    try:
        return trial_restore.put_back(store, name, early)[1]
    except Exception as error:  # whatever it is, the values are not back, and giving up would leave them so
        return ["%s: %s" % (type(error).__name__, error)]


def end(trial: Trial, store: Store) -> int:
    """Nothing is left but the word on what was done."""
    with contextlib.suppress(OSError):
        trial_restore.forget(store, trial.name)
    trial_unit.remove(trial_restore.run)
    trial.reduce()
    return 0


def log(trial: Trial, line: str) -> None:
    """For who looks into a host that did not get its values back."""
    with contextlib.suppress(OSError), open(trial.path("guard.log"), "a", encoding="utf-8") as stream:
        stream.write("%s %s\n" % (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), line))


def ready() -> None:
    """Tell systemd, where it started us: what waits for us may go on."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
            stream.connect("\0" + address[1:] if address.startswith("@") else address)
            stream.sendall(b"READY=1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
