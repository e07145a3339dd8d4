"""Where a node keeps a trial's arming: one folder a trial, who holds it, its lease, and what its guard says."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_files
from ansible_collections.nodectl.fleet.plugins.module_utils.node_store import ROOT, RUN_NAME

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator, Mapping

    Document = dict[str, Any]

ARMED, RESTORING, RESTORED = "armed", "restoring", "restored"
# in the environment of everything that a trial's playbooks run on the node: the wrapper below puts it there
MARK = "NODECTL_TRIAL"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# where a guard has its copy of these modules, so that they find each other under the names that they have here
PACKAGE = ("ansible_collections", "nodectl", "fleet", "plugins", "module_utils")


class Trials:
    """All armings of this node; at most one of them is more than a note that was left."""

    def __init__(self, root: str = ROOT) -> None:
        self.root, self.folder = root, os.path.join(root, "trials")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time arms, takes off or clears."""
        lock = self.lock()
        try:
            for name in os.listdir(self.folder):
                if name.startswith(".new-"):
                    shutil.rmtree(os.path.join(self.folder, name))
            yield
        finally:
            self.tidy()
            os.close(lock)

    def lock(self) -> int:
        """The lock's file, held; one that went with its folder while we waited for it is none."""
        path = os.path.join(self.folder, ".lock")
        while True:
            os.makedirs(self.root, mode=0o755, exist_ok=True)
            os.makedirs(self.folder, exist_ok=True)
            os.chmod(self.folder, 0o711)  # noqa: S103 - the login that renews comes through
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                return file
            os.close(file)

    def tidy(self) -> None:
        """The folder goes with the last trial in it."""
        with contextlib.suppress(OSError):
            if os.listdir(self.folder) == [".lock"]:
                os.unlink(os.path.join(self.folder, ".lock"))
                os.rmdir(self.folder)

    def all(self) -> list[Trial]:
        """Each arming, and each note that one left."""
        with contextlib.suppress(FileNotFoundError):
            return [self.trial(name) for name in sorted(os.listdir(self.folder)) if RUN_NAME.fullmatch(name)]
        return []

    def trial(self, name: str) -> Trial:
        """The trial of that name, which need not be there."""
        return Trial(os.path.join(self.folder, name), self.root)


class Trial:
    """One trial's folder: whose, the lease that its nodectl renews, the guard's word, the way in for its playbooks."""

    def __init__(self, folder: str, root: str = ROOT) -> None:
        self.folder, self.root, self.name = folder, root, os.path.basename(folder)

    def path(self, name: str) -> str:
        """A file of the folder."""
        return os.path.join(self.folder, name)

    def there(self) -> bool:
        """It was armed here, and nobody has cleared that."""
        return os.path.isdir(self.folder)

    def create(self, about: Mapping[str, Any], library: Mapping[str, str], python: str, uid: int) -> None:
        """The whole folder, made beside its place and renamed when it is complete."""
        staged = os.path.join(os.path.dirname(self.folder), ".new-" + self.name)
        os.mkdir(staged, 0o711)
        os.chmod(staged, 0o711)  # noqa: S103 - the same
        os.makedirs(os.path.join(staged, "lib", *PACKAGE), mode=0o700)
        os.chmod(os.path.join(staged, "lib"), 0o700)
        # with __init__.py they come before collections that this Python may have of its own
        texts = {os.path.join(*PACKAGE[: depth + 1], "__init__.py"): "" for depth in range(len(PACKAGE))}
        texts["__main__.py"] = START
        texts.update({os.path.join(*PACKAGE, name + ".py"): text for name, text in library.items()})
        for name, text in texts.items():
            put(os.path.join(staged, "lib", name), text, 0o600)
        put(os.path.join(staged, "python3"), wrapper(self.name, python), 0o755)
        put(os.path.join(staged, "armed.json"), json.dumps(about, sort_keys=True) + "\n", 0o600)
        put(os.path.join(staged, "state"), json.dumps({"state": ARMED, "seen": ""}) + "\n", 0o644)
        put(os.path.join(staged, "lease"), "", 0o600)
        os.chown(os.path.join(staged, "lease"), uid, -1)
        node_files.sync_folder(staged)
        os.rename(staged, self.folder)
        node_files.sync_folder(os.path.dirname(self.folder))

    def about(self) -> Document:
        """by, what, since, lease_s, settle_s, boot; {} where it is a note only."""
        return read_json(self.path("armed.json"))

    def said(self) -> Document:
        """The guard's last word: state, seen, and once it has acted since, why, errors."""
        return read_json(self.path("state"))

    def say(self, **word: Any) -> None:
        """Leave a word for whoever looks next; on a full disk the values matter more."""
        with contextlib.suppress(OSError):
            put(self.path("state"), json.dumps(word, sort_keys=True) + "\n", 0o644)

    def lease(self) -> str:
        """What nodectl wrote last; empty while it is being written, or once it is closed."""
        try:
            with open(self.path("lease"), encoding="ascii", errors="replace") as stream:
                return stream.read(100).strip()
        except OSError:
            return ""

    def close(self) -> None:
        """No playbook of the trial gets in any more, and nobody renews."""
        for name in ("python3", "lease"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def hold(self) -> int | None:
        """The guard's own lock, kept as long as it lives; None where another guard has it."""
        file = os.open(self.path("guard.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
        return file

    def guard(self) -> int | None:
        """The process that watches; None where there is none."""
        try:
            file = os.open(self.path("guard.lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(file, 32, 0).strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(file)
        return None

    def end_guard(self, patience_s: float = 5.0) -> None:
        """The process goes; it changes nothing while it does."""
        until = time.monotonic() + patience_s
        while self.guard() is not None:
            pid = self.guard()
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if time.monotonic() < until - 1 else signal.SIGKILL)
            if time.monotonic() > until + patience_s:
                raise OSError("the guard of trial %s (process %s) does not end" % (self.name, pid))
            time.sleep(0.02)

    def reduce(self) -> None:
        """All but the guard's word goes: it is for the next nodectl to read."""
        self.close()
        shutil.rmtree(self.path("lib"), ignore_errors=True)
        for name in ("armed.json", "guard.log"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def remove(self) -> None:
        """Gone by name in one step, then for good."""
        dying = os.path.join(os.path.dirname(self.folder), ".new-" + self.name)
        os.rename(self.folder, dying)
        shutil.rmtree(dying)

    def holder(self) -> str:
        """Whose it is, for people."""
        about = self.about()
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(about.get("since", 0)))
        return "%s for '%s' since %s UTC" % (about.get("by") or "another nodectl", about.get("what", ""), since)


START = """\
import sys

from ansible_collections.nodectl.fleet.plugins.module_utils.trial_guard import main

sys.exit(main(sys.argv[1:]))
"""


def wrapper(trial: str, python: str) -> str:
    """What the trial's playbooks run Python by: it marks what they run, and is gone once the guard acts."""
    return "#!/bin/sh\n%s='%s' exec '%s' \"$@\"\n" % (MARK, trial, python.replace("'", "'\\''"))


def put(path: str, text: str, mode: int) -> None:
    """A file in one step, with this mode whatever the umask."""
    staged = path + ".part"
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(staged, path)


def read_json(path: str) -> Document:
    """A document; {} where there is none or it cannot be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def boot_id() -> str:
    """Differs after each start of the host."""
    try:
        with open(BOOT_ID, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""
