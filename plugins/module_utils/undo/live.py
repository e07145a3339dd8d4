# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Things that a node holds beside its files: units, kernel values, and what only a program reads and sets."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import gpu_hw, kernel_values, nic_hw

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable, Iterable

    from ansible.module_utils.basic import AnsibleModule

    Run = Callable[[list[str]], tuple[int, str, str]]
    State = dict[str, str]


def warn_not_settable(module: AnsibleModule, reasons: Iterable[str]) -> None:
    """Warn, seen without -v, of each thing that was asked for and that this host cannot hold: `SETTING: why`."""
    for reason in reasons:
        setting, _unused, why = reason.partition(": ")
        # Ansible does not say of which host
        module.warn(f"{os.uname().nodename}: {setting}: not settable on this host: {why}")


def systemd_runs() -> bool:
    """Return whether systemd is process 1 here."""
    return os.path.isdir("/run/systemd/system")


def manages_us() -> bool:
    """Return whether systemd runs and shares our network and mounts: what it starts changes what we see."""
    with contextlib.suppress(OSError):
        return systemd_runs() and all(
            os.readlink(f"/proc/1/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt")
        )
    return False


def look_units(run: Run, names: list[str]) -> dict[str, State]:
    """Return enabled and active state of each unit; without a running systemd only what the unit files say."""
    if not names or not shutil.which("systemctl"):
        return {}
    if not systemd_runs():
        # one line a unit, but none for a unit that does not exist: so one call each
        return {name: {"enabled": run(["systemctl", "is-enabled", name])[1].strip() or "not-found"} for name in names}
    fields = "--property=Id,Names,UnitFileState,ActiveState,LoadState"
    states = {}
    for block in run(["systemctl", "show", fields, "--", *names])[1].split("\n\n"):
        shown = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        state = {"enabled": shown.get("UnitFileState") or "not-found", "active": shown.get("ActiveState", "inactive")}
        if shown.get("LoadState") == "masked":
            state["enabled"] = "masked"
        for name in {shown.get("Id", ""), *shown.get("Names", "").split()}:
            states[name] = state
    return {name: states.get(name, {"enabled": "not-found", "active": "inactive"}) for name in names}


def sysctl_path(key: str, root: str = "/proc/sys") -> str:
    """Return the kernel's file for a key."""
    return os.path.join(root, kernel_values.proc_path(key))


def look_values(patterns: list[str]) -> dict[str, str | None]:
    """Each kernel file's value; None if there is none."""
    values: dict[str, str | None] = {}
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]:
            values[path] = read_value(path)
    return values


def read_value(path: str) -> str | None:
    """Return a kernel file's value, with single spaces."""
    try:
        with open(path, encoding="utf-8") as stream:
            return " ".join(stream.read().split())
    except (OSError, UnicodeDecodeError):
        return None


def write_value(path: str, value: str) -> str:
    """Write a kernel value and read it back; the reason if it does not hold."""
    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(value)
    except OSError as error:
        if not by_netlink(path, value):
            return str(error.strerror)
    held = read_value(path)
    return "" if held == value else "the kernel holds %s" % held


def by_netlink(path: str, value: str) -> bool:
    """Set an interface's MTU by netlink.

    Where its file in a container is read-only, it is still the container's to set.
    """
    match = re.match(r"/sys/class/net/([^/]+)/mtu$", path)
    argv = ["ip", "link", "set", "dev", match.group(1), "mtu", value] if match else []
    done = bool(argv) and subprocess.run(argv, capture_output=True, check=False)  # pylint: disable=ansible-bad-function
    return bool(done) and done.returncode == 0


def look_live(run: Run, item: dict[str, str]) -> State:
    """Return a value that only a program reads: `rings` of an interface, settings of the GPUs.

    Empty if there is none.
    """
    if item["kind"] == "rings" and shutil.which("ethtool"):
        status, out, _unused = run(["ethtool", "-g", item["interface"]])
        current = out.partition("Current hardware settings:")[2] if status == 0 else ""
        return {ring: str(size) for ring, size in nic_hw.ring_sizes(current).items()}
    if item["kind"] == "gpu" and shutil.which("nvidia-smi"):
        try:
            found = [(gpu["uuid"], gpu_hw.settings(gpu)) for gpu in gpu_hw.gpus(run) or ()]
        except gpu_hw.UnreadableError as error:
            return {"": str(error)}  # no GPU's setting: it says why none is known
        return {f"{uuid} {name}": value for uuid, settings in found for name, value in settings.items()}
    return {}


def live_commands(item: dict[str, str], before: State, now: State) -> list[list[str]]:
    """Pure: the commands that bring `now` back to `before`."""
    if item["kind"] == "rings":
        return nic_hw.ring_commands(item["interface"], before, now)
    commands = []
    for key in filter(None, before):
        uuid, name = key.split()
        commands += gpu_hw.setting_commands(uuid, {name: before[key]}, {name: now.get(key, before[key])})
    return commands
