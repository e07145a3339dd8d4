# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's trial: live values only, and a timer that restores them once nobody renews the lease.

Everything is below /run, so a reboot forgets the trial and its values together.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import files
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import live

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator, Mapping

    from ansible.module_utils.basic import AnsibleModule

    Run = live.Run

ROOT = "/run/nodectl-trial"
# a timer runs it once a lease: an empty file means that nobody has renewed since the last time
CHECK = """\
cd %s 2>/dev/null || exit 0
if [ -s lease ]; then : > lease; exit 0; fi
exec sh ./restore
"""
# {folder}, {lines} and {timer}; a module that is setting values holds the lock
RESTORE = """\
cd {folder} || exit 0
exec 9> lock
flock -w 60 9
: > failed
put() {{ printf '%s\\n' "$1" > "$2" || echo "$2" >> failed; }} 2>/dev/null
run() {{ "$@" > /dev/null 2>&1 || echo "$*" >> failed; }}
{lines}[ ! -s failed ] || exit 1
rm -rf {folder}
systemctl stop {timer} 2>/dev/null
exit 0
"""
LOOP = '(while sleep "$1" && [ -d "$2" ]; do sh "$2/check"; done) &'


class Trial:
    """One trial's folder: who runs it, its lease, former values and the script that restores them."""

    def __init__(self, name: str, root: str = ROOT) -> None:
        self.name, self.root, self.folder = name, root, os.path.join(root, name)
        self.timer = "nodectl-trial-%s.timer" % name

    def path(self, name: str) -> str:
        """Return a file of the folder."""
        return os.path.join(self.folder, name)

    def exists(self) -> bool:
        """Return whether it is armed here, and nothing has restored its values."""
        return os.path.exists(self.path("restore"))

    def arm(self, run: Run, about: Mapping[str, Any], uid: int, lease_s: float) -> str:
        """Make the folder, then start its timer; return why it could not. `uid` renews the lease."""
        for folder in (self.root, self.folder):
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o755)  # noqa: S103 - the login that renews must reach its file
        files.write_json(self.path("about.json"), about, 0o644)
        files.write_text(self.path("check"), CHECK % shlex.quote(self.folder))
        files.write_text(self.path("lease"), "armed\n", 0o600)
        os.chown(self.path("lease"), uid, -1)
        self.keep({}, {})
        if not live.manages_us():
            loop, null = ["sh", "-c", LOOP, "sh", "%g" % lease_s, self.folder], subprocess.DEVNULL
            subprocess.run(  # pylint: disable=ansible-bad-function
                loop, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True, check=False
            )
            return ""
        argv = ["systemd-run", "--quiet", "--unit=" + self.timer[: -len(".timer")], "--timer-property=AccuracySec=1s"]
        argv += ["--on-active=%gs" % lease_s, "--on-unit-inactive=%gs" % lease_s, "/bin/sh", self.path("check")]
        status, out, err = run(argv)
        if status:
            shutil.rmtree(self.folder)
        return "%s: %s" % (" ".join(argv), (err or out).strip()) if status else ""

    def record(self, path: str) -> str:
        """Return the trial's copy of a role's record: what the role holds already, and what the trial adds.

        ECC and MIG modes are left out: they wait for a reset of the GPU.
        """
        copy = self.path(os.path.basename(path))
        if not os.path.exists(copy):
            held = files.read_json(path)
            files.write_json(copy, {key: held[key] for key in held if not key.endswith((" ecc", " mig"))})
        return copy

    def keep(self, values: Mapping[str, str], commands: Mapping[str, list[str]]) -> None:
        """Before a change: {kernel file: value} and {name: command} that restore; the first of a name counts."""
        kept = {"values": {}, "commands": {}, **files.read_json(self.path("former.json"))}
        kept = {"values": {**values, **kept["values"]}, "commands": {**commands, **kept["commands"]}}
        files.write_json(self.path("former.json"), kept)
        lines = ["put %s %s" % (shlex.quote(value), shlex.quote(path)) for path, value in kept["values"].items()]
        lines += ["run %s" % " ".join(map(shlex.quote, argv)) for argv in kept["commands"].values()]
        text = "".join(line + "\n" for line in lines)
        files.write_text(
            self.path("restore"), RESTORE.format(folder=shlex.quote(self.folder), lines=text, timer=self.timer)
        )

    def commands(self) -> dict[str, list[str]]:
        """Return the commands that restore, by name."""
        return dict(files.read_json(self.path("former.json")).get("commands", {}))

    def restore(self, run: Run) -> list[str]:
        """Restore the former values at once; return what is not as before. The timer tries that again."""
        values = files.read_json(self.path("former.json")).get("values", {})
        status, out, err = run(["sh", self.path("restore")])
        failed = files.read_or(self.path("failed")).splitlines()
        if status and not failed:
            failed = [(err or out).strip()]
        return failed or ["%s is not %s" % item for item in values.items() if live.read_value(item[0]) != item[1]]


@contextlib.contextmanager
def changing(module: AnsibleModule) -> Iterator[Trial | None]:
    """Yield the trial that the module sets values for, held against its timer; None if it sets them to stay."""
    if not module.params["trial"]:
        yield None
        return
    trial = Trial(module.params["trial"])
    try:
        with open(trial.path("lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not trial.exists():
                raise FileNotFoundError
            yield trial
    except FileNotFoundError:
        module.fail_json(msg="nothing was changed: this host has restored itself, or trial %s never began" % trial.name)


def others(trial: Trial) -> list[Trial]:
    """Return trials whose values are still on this host: nobody watches them but their timers."""
    with contextlib.suppress(FileNotFoundError):
        found = [Trial(name, trial.root) for name in sorted(os.listdir(trial.root)) if name != trial.name]
        return [other for other in found if other.exists()]
    return []


def restored(module: AnsibleModule, trials: list[Trial]) -> list[str]:
    """Restore what these trials left; the module fails if something is not as before. Return a line for each."""
    for trial in trials:
        failed = trial.restore(module.run_command)
        if failed:
            module.fail_json(msg="not all is as before trial %s: %s" % (trial.name, "; ".join(failed)))
    return ["the values of trial %s were restored" % trial.name for trial in trials]
