# SPDX-License-Identifier: Apache-2.0
"""A node's arming for a trial: one folder a trial, its holder, its lease, its guard's state.

systemd keeps the guard running, and starts it at a boot; without systemd it is a process of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import live
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import ROOT, RUN_NAME

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable, Iterator, Mapping

    Document = dict[str, Any]
    Run = Callable[[list[str]], tuple[int, str, str]]

ARMED, RESTORING, RESTORED = "armed", "restoring", "restored"
# in the environment of everything that a trial's playbooks run on the node: the wrapper below puts it there
MARK = "NODECTL_TRIAL"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# the package of all these modules; a guard has its copy of them under the same names
PACKAGE = __name__.rsplit(".", 2)[0]
GUARD = """\
import sys

from %s.undo.guard import main

sys.exit(main(sys.argv[1:]))
"""
# marks what a trial's playbooks run, and is gone once the guard acts
WRAPPER = """\
#!/bin/sh
%s='%s' exec '%s' "$@"
"""
# a guard is asked to end for so long, then killed, and after that waited for
_POLITE_S, _ENDS_S = 4.0, 10.0
UNIT = "nodectl-trial.service"
UNIT_PATH = "/etc/systemd/system/" + UNIT
# at a boot it comes before whatever reads the files that a trial may have changed, and before all ordinary services
UNIT_TEXT = """\
# Written by nodectl while a trial is under way; it goes with the trial.
[Unit]
Description=Former values of this host, if nodectl's trial %(trial)s does not put them back
DefaultDependencies=no
RequiresMountsFor=%(folder)s
After=local-fs.target systemd-remount-fs.service
Before=systemd-sysctl.service nodectl-nic.service nodectl-gpu.service sysinit.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=notify
ExecStart="%(python)s" -BEs "%(folder)s/lib" "%(folder)s"
Restart=on-failure
RestartSec=1
TimeoutStartSec=120
KillMode=process

[Install]
WantedBy=sysinit.target
"""


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
            # the folder goes with the last trial in it
            with contextlib.suppress(OSError):
                if os.listdir(self.folder) == [".lock"]:
                    os.unlink(os.path.join(self.folder, ".lock"))
                    os.rmdir(self.folder)
            os.close(lock)

    def lock(self) -> int:
        """Return the lock's file, held; one that went with its folder while we waited for it is none."""
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

    def all(self) -> list[Trial]:
        """Each arming, and each note that one left."""
        with contextlib.suppress(FileNotFoundError):
            return [self.trial(name) for name in sorted(os.listdir(self.folder)) if RUN_NAME.fullmatch(name)]
        return []

    def trial(self, name: str) -> Trial:
        """Return the trial of that name, which need not be there."""
        return Trial(os.path.join(self.folder, name), self.root)


class Trial:
    """One trial's folder: whose, the lease that its nodectl renews, the guard's state, the wrapper of its playbooks."""

    def __init__(self, folder: str, root: str = ROOT) -> None:
        self.folder, self.root, self.name = folder, root, os.path.basename(folder)

    def path(self, name: str) -> str:
        """Return a file of the folder."""
        return os.path.join(self.folder, name)

    def there(self) -> bool:
        """Return whether it was armed here, and nobody has cleared that."""
        return os.path.isdir(self.folder)

    def create(self, about: Mapping[str, Any], python: str, uid: int) -> None:
        """Create the whole folder, made next to its place and renamed when complete; `uid` renews the lease."""
        staged = os.path.join(os.path.dirname(self.folder), ".new-" + self.name)
        os.mkdir(staged, 0o711)
        os.chmod(staged, 0o711)  # noqa: S103 - the same
        os.mkdir(os.path.join(staged, "lib"), 0o700)
        for name, text in library().items():
            files.write_text(os.path.join(staged, "lib", name), text, 0o600)
        wrapper = WRAPPER % (MARK, self.name, python.replace("'", "'\\''"))
        files.write_text(os.path.join(staged, "python3"), wrapper, 0o755)
        files.write_json(os.path.join(staged, "armed.json"), about)
        files.write_json(os.path.join(staged, "state"), {"state": ARMED, "seen": ""}, 0o644)
        files.write_text(os.path.join(staged, "lease"), "", 0o600)
        os.chown(os.path.join(staged, "lease"), uid, -1)
        files.sync_folder(staged)
        os.rename(staged, self.folder)
        files.sync_folder(os.path.dirname(self.folder))

    def about(self) -> Document:
        """by, what, since, lease_s, settle_s, boot; {} if it is a note only."""
        return files.read_json(self.path("armed.json"))

    def holder(self) -> str:
        """Return whose it is, for people."""
        about = self.about()
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(about.get("since", 0)))
        return "%s for '%s' since %s UTC" % (about.get("by") or "another nodectl", about.get("what", ""), since)

    def state(self) -> Document:
        """Return what the guard wrote last: state, seen, and once it has acted since, why, errors."""
        return files.read_json(self.path("state"))

    def write_state(self, **state: Any) -> None:
        """For whoever looks next; on a full disk the values matter more."""
        with contextlib.suppress(OSError):
            files.write_json(self.path("state"), state, 0o644)

    def lease(self) -> str:
        """Return what nodectl wrote last; empty while it is being written, or once it is closed."""
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
        """Take the guard's own lock, kept as long as it lives; None where another guard has it."""
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
        """Return the process that watches; None if there is none."""
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

    def start_guard(self, run: Run, python: str) -> str:
        """Start the guard so that it outlives this session; the reason if it could not."""
        if not live.systemd_runs():
            detach([python, "-BEs", self.path("lib"), self.folder])
            return ""
        names = {"trial": self.name, "folder": self.folder.replace("%", "%%"), "python": python.replace("%", "%%")}
        files.write_text(UNIT_PATH, UNIT_TEXT % names)
        for argv in (["systemctl", "daemon-reload"], ["systemctl", "enable", "--quiet", "--now", UNIT]):
            status, out, err = run(argv)
            if status != 0:
                return "%s: %s" % (" ".join(argv), (err or out).strip())
        return ""

    def end_guard(self, run: Run) -> None:
        """End the process, which changes nothing on its way; its unit first, or systemd would start it again."""
        if live.systemd_runs() and os.path.lexists(UNIT_PATH):
            run(["systemctl", "stop", UNIT])
            run(["systemctl", "reset-failed", UNIT])
        started, pid = time.monotonic(), self.guard()
        while pid is not None:
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if time.monotonic() - started < _POLITE_S else signal.SIGKILL)
            if time.monotonic() - started > _ENDS_S:
                raise OSError("the guard of trial %s (process %s) does not end" % (self.name, pid))
            time.sleep(0.02)
            pid = self.guard()
        remove_unit(run)

    def reduce(self) -> None:
        """All but the guard's state goes: it is for the next nodectl to read."""
        self.close()
        shutil.rmtree(self.path("lib"), ignore_errors=True)
        files.sweep(self.folder)
        for name in ("armed.json", "guard.log"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def remove(self) -> None:
        """Gone by name in one step, then for good."""
        dying = os.path.join(os.path.dirname(self.folder), ".new-" + self.name)
        os.rename(self.folder, dying)
        shutil.rmtree(dying)


def library() -> dict[str, str]:
    """{path: text} of a program that is the guard: this package's modules that are loaded here, as they run here."""
    importlib.import_module(PACKAGE + ".undo.guard")
    parts = PACKAGE.split(".")
    # with __init__.py they come before collections that this Python may have of its own
    texts = {os.path.join(*parts[: depth + 1], "__init__.py"): "" for depth in range(len(parts))}
    texts["__main__.py"] = GUARD % PACKAGE
    for name, module in sorted(sys.modules.items()):
        spec = module.__spec__ if name.startswith(PACKAGE + ".") else None
        if spec and spec.loader:
            ending = ".py" if spec.submodule_search_locations is None else "/__init__.py"
            # also out of the archive in which Ansible sends them; a folder without a file of its own has no text
            get_source = getattr(spec.loader, "get_source", None)
            texts[name.replace(".", "/") + ending] = (get_source(name) if get_source else "") or ""
    return texts


def remove_unit(run: Run) -> None:
    """Remove the unit, so that no boot starts it; a guard that runs as one goes on to its own end."""
    if os.path.lexists(UNIT_PATH):
        run(["systemctl", "disable", "--quiet", UNIT])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(UNIT_PATH)
        if live.systemd_runs():
            run(["systemctl", "daemon-reload"])


def detach(argv: list[str]) -> None:
    """Start a process that nobody waits for, in a session of its own, with nothing of ours open."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        subprocess.Popen(  # pylint: disable=ansible-bad-function
            argv,
            cwd="/",
            env={"PATH": PATH, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os._exit(0)


def boot_id() -> str:
    """Differs after each start of the host."""
    return files.read_or(BOOT_ID).strip()
