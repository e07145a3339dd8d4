"""How the guard of a trial is kept running: by systemd, which also starts it at a boot, or as a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import node_files, node_live

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable

    Run = Callable[[list[str]], tuple[int, str, str]]

UNIT = "nodectl-trial.service"
PATH = "/etc/systemd/system/" + UNIT
# at a boot it comes before whatever reads the files that a trial may have changed, and before all ordinary services
TEXT = """\
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


def start(run: Run, trial: str, folder: str, python: str) -> str:
    """Start the guard so that it outlives this session; the reason where it could not."""
    if not node_live.systemd_runs():
        detach([python, "-BEs", os.path.join(folder, "lib"), folder])
        return ""
    names = {"trial": trial, "folder": folder.replace("%", "%%"), "python": python.replace("%", "%%")}
    text = (TEXT % names).encode()
    node_files.write_whole(PATH, lambda stream: stream.write(text), mode=0o644)
    for argv in (["systemctl", "daemon-reload"], ["systemctl", "enable", "--quiet", "--now", UNIT]):
        status, out, err = run(argv)
        if status != 0:
            return "%s: %s" % (" ".join(argv), (err or out).strip())
    return ""


def remove(run: Run) -> None:
    """The unit is no longer started at a boot; a guard that runs as one goes on to its own end."""
    if os.path.lexists(PATH):
        run(["systemctl", "disable", "--quiet", UNIT])
        with contextlib.suppress(FileNotFoundError):
            os.unlink(PATH)
        if node_live.systemd_runs():
            run(["systemctl", "daemon-reload"])


def stop(run: Run) -> None:
    """A unit that runs is ended, before systemd could start it again."""
    if node_live.systemd_runs() and os.path.lexists(PATH):
        run(["systemctl", "stop", UNIT])
        run(["systemctl", "reset-failed", UNIT])


def detach(argv: list[str]) -> None:
    """A process that nobody waits for, in a session of its own, with nothing of ours open."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        subprocess.Popen(
            argv,
            cwd="/",
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os._exit(0)
