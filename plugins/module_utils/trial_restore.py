"""A trial's settings taken off a node: its former values put back by its own record, and looked at again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_live
from ansible_collections.nodectl.fleet.plugins.module_utils.node_history import settle, sweep_around
from ansible_collections.nodectl.fleet.plugins.module_utils.node_plan import Undo
from ansible_collections.nodectl.fleet.plugins.module_utils.node_undo import Undoing
from ansible_collections.nodectl.fleet.plugins.module_utils.trial_store import MARK

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.node_store import Store

PROGRAM_S = 20.0
_GONE_S = 5.0


def run(argv: list[str], **_: Any) -> tuple[int, str, str]:
    """A program with nothing of ours around it; one that is missing, or hangs, is a status and not the end."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, env=environment, timeout=PROGRAM_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, "", "%s did not end in %g s" % (argv[0], PROGRAM_S)
    except OSError as error:
        return 127, "", "%s: %s" % (argv[0], error.strerror)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


class _Way(Undo):  # type: ignore[misc]
    """The trial's record as a way back; `early` at a boot leaves what only a running system can do."""

    def __init__(self, store: Store, trial: str, early: bool) -> None:
        super().__init__(store, run, [trial], packages=False)
        if early:
            self.before["live"] = {}
            for state in self.before["units"].values():
                state.pop("active", None)

    def left(self) -> list[str]:
        """What is not as it was before."""
        changes = [*self.path_changes(), *self.tree_changes(), *self.unit_changes(), *self.live_changes()]
        lines = ["%s %s is not as before" % (change["what"], change["subject"]) for change in changes]
        values, _ = self.value_changes()  # what is gone, or somebody else's by now, is not to be waited for
        lines += ["%s is not as before: %s" % (change["subject"], change["action"]) for change in values]
        for key, item in sorted(self.before["live"].items()):
            if item["state"] and not self.now["live"][key]["state"]:
                lines.append("%s does not answer: whether it is as before cannot be told" % key)
        return lines


class _Restoring(Undoing):  # type: ignore[misc]
    """As a rollback does it, but the record stays until it was looked at again."""

    def close(self, kept: dict[str, str]) -> None:
        """Not yet."""


def put_back(store: Store, trial: str, early: bool = False) -> tuple[bool, list[str]]:
    """(whether anything was changed, what is not as before now); harmless to repeat, and after a cut."""
    with store.locked():
        if not store.exists(trial):
            return False, []
        sweep_around(store.load(trial)["before"]["paths"])
        way = _Way(store, trial, early)
        if early:
            cancel_starts(way)
        doing = _Restoring(way)
        changed = doing.all()
        return changed, [*doing.errors, *_Way(store, trial, early).left()]


def cancel_starts(way: Undo) -> None:
    """At a boot: units that the trial brought are already waiting for their turn."""
    for name, state in sorted(way.before["units"].items()):
        if state.get("enabled") not in ("enabled", "enabled-runtime", "static"):
            run(["systemctl", "--no-block", "stop", "--", name])


def forget(store: Store, trial: str) -> None:
    """Drop the record where all is as before; what differs stays for `nodectl rollback`."""
    with store.locked():
        settle(store, run, trial)


def drop(store: Store, trial: str) -> None:
    """Forget a record that was begun in vain."""
    with store.locked():
        if store.exists(trial):
            store.drop(trial)


def end_marked(trial: str, proc: str = "/proc", patience_s: float = _GONE_S) -> int:
    """Kill what the trial's playbooks still run here, until nothing is left of it; how many there were."""
    seen: set[int] = set()
    until = time.monotonic() + patience_s
    while True:
        found = marked(trial, proc)
        seen |= found
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found or time.monotonic() > until:
            return len(seen)
        time.sleep(0.02)


def marked(trial: str, proc: str = "/proc") -> set[int]:
    """Processes that were started through the trial's own Python, and their children."""
    mark, found = ("%s=%s" % (MARK, trial)).encode(), set()
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(os.path.join(proc, name, "environ"), "rb") as stream:
                if mark in stream.read().split(b"\0"):
                    found.add(int(name))
    return found


def boot_is_over() -> bool:
    """systemd has started what it starts by itself, or there is no systemd."""
    if not node_live.systemd_runs():
        return True
    return run(["systemctl", "is-system-running"])[1].strip() not in ("initializing", "starting", "")
