#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: nodectl itself on a node, in an environment of its own, run by a systemd timer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tool_timer
short_description: Run nodectl on a node by a timer
description:
  - Makes an environment aside, renames it when it is complete and swaps a link; a killed run leaves nothing half-made.
  - The environment that was current before stays, also where the tool is taken away, since a rollback needs it.
  - Needs an interpreter of nodectl's own lowest version; without one, or without systemd, nothing is installed.
author: The nodectl authors (!UNKNOWN)
options:
  state:
    description: Look whether it can be, have it, or have it no longer.
    type: str
    choices: [look, present, absent]
    required: true
  store: {description: Where the environments are., type: path, required: true}
  link: {description: The link to the current one., type: path, required: true}
  wheel: {description: nodectl's wheel on the node., type: path, default: ''}
  wheel_folder: {description: Where such wheels are; others than the current go., type: path, required: true}
  wheel_digest: {description: Its digest., type: str, default: ''}
  requirements: {description: What the wheel needs., type: list, elements: str, default: []}
  locked: {description: A lock of what it needs as python_lock registers it., type: list, elements: str, default: []}
  uv: {description: uv on the node., type: path, default: /opt/nodectl/bin/uv}
  wheelhouse: {description: A folder or address with all that it needs; replaces the index., type: str, default: ''}
  index: {description: The package index; empty is uv's own default., type: str, default: ''}
  folder: {description: The textfile collector's folder., type: path, required: true}
  files:
    description: Path and text of inventory, service and timer; the timer's path ends in .timer.
    type: dict
    required: true
"""
EXAMPLES = r"""
- nodectl.fleet.tool_timer:
    state: look
    store: /opt/nodectl/tools
    link: /opt/nodectl/tool
    wheel_folder: /opt/nodectl/wheels
    folder: /var/lib/node_exporter/textfile_collector
    files: {}
"""
RETURN = r"""
systemd: {description: Whether systemd is process 1., type: bool, returned: with look}
python: {description: The interpreter that nodectl will use; empty where none can., type: str, returned: with look}
python_version: {description: Its version., type: str, returned: with look}
machine: {description: As uname -m says., type: str, returned: with look}
"""

import glob
import hashlib
import os
import platform
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import python_lock
from ansible_collections.nodectl.fleet.plugins.module_utils.boot_service import converge, runner
from ansible_collections.nodectl.fleet.plugins.module_utils.env_store import PARTIAL, activate, clean, current, prune
from ansible_collections.nodectl.fleet.plugins.module_utils.python_env import key, version_of
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import systemd_runs

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    Run = Callable[[list[str]], tuple[int, str, str]]


LOWEST = (3, 11)
KEPT = 1  # environments beside the current one
PLACES = ("/opt/nodectl/python/*/bin/python3", "/usr/local/bin/python3*", "/usr/bin/python3*")


def interpreter(run: Run) -> tuple[str, str]:
    """(path, '') of the first interpreter that is new enough, else ('', what there is)."""
    others = []
    for path in [path for place in PLACES for path in sorted(glob.glob(place), reverse=True)]:
        if not re.search(r"/python3(\.\d+)?$", path):
            continue
        version = ".".join(version_of(run, path).split(".")[:2])
        if version and key(version) >= LOWEST:
            return path, ""
        others.append(f"{path} is {version or 'broken'}")
    return "", "; ".join(others) or "none"


def refusal(run: Run) -> str:
    """Why the tool cannot be here; empty where it can."""
    path, others = interpreter(run)
    if path:
        return ""
    lowest = ".".join(map(str, LOWEST))
    return (
        f"health_timer needs Python {lowest} or newer on the node, there is: {others}; set health_timer_enabled "
        "(in nodectl's inventory: nodectl_health_timer) to false"
    )


def install(module: AnsibleModule, run: Run) -> bool:
    """The environment of this wheel and interpreter, current by the link; whether anything changed."""
    params = module.params
    python, _unused = interpreter(run)
    store, link = Path(params["store"]), Path(params["link"])
    locked = [line.partition(" ")[0] for line in params["locked"]]
    identity = "\n".join([params["wheel_digest"], python, params["wheelhouse"], params["index"], *sorted(locked)])
    target = store / hashlib.sha256(identity.encode()).hexdigest()[:16]
    if current(link) == target and (target / "bin" / "nodectl").exists():
        return False
    if module.check_mode:
        return True
    store.mkdir(mode=0o755, parents=True, exist_ok=True)
    clean(store, link)
    if not target.is_dir():
        make(module, run, python, store / (PARTIAL + target.name))
        (store / (PARTIAL + target.name)).rename(target)
    activate(link, target)
    prune(store, link, KEPT)
    return True


def make(module: AnsibleModule, run: Run, python: str, folder: Path) -> None:
    """An environment that may be renamed, with nodectl and all that it needs."""
    params = module.params
    if not os.access(params["uv"], os.X_OK):
        module.fail_json(msg=f"there is no uv at {params['uv']}; `nodectl provision --tags python` brings it")
    inside, cache = folder / "bin" / "python", folder / "uv-cache"
    quiet = ["--quiet", "--no-config", "--python"]
    steps = [
        [params["uv"], "venv", "--relocatable", *quiet, python, str(folder)],
        [params["uv"], "pip", "install", "--no-deps", *quiet, str(inside), params["wheel"]],
    ]
    for step in steps:
        status, out, err = run(step)
        if status != 0:
            module.fail_json(msg=f"{' '.join(step)}: {(err or out).strip()}")

    def with_settings(argv: list[str], env: dict[str, str]) -> tuple[int, str, str]:
        status, out, err = module.run_command(argv, environ_update=env)
        return int(status), str(out), str(err)

    cache.mkdir()
    try:
        python_lock.fill(with_settings, inside, cache, {**params, "constraints": []})
    except python_lock.LockError as error:
        module.fail_json(msg=f"nodectl's own packages: {error}")
    shutil.rmtree(cache)
    (folder / "installed").write_text(params["wheel_digest"] + "\n")


def other_wheels(module: AnsibleModule) -> list[Path]:
    """nodectl's wheels but the current one."""
    wheels = sorted(Path(module.params["wheel_folder"]).glob("nodectl-*.whl"))
    return [path for path in wheels if str(path) != module.params["wheel"]]


def texts(module: AnsibleModule, present: bool) -> tuple[str, dict[str, tuple[str, int]]]:
    """(the timer's name, each file's text and mode)."""
    asked = module.params["files"].items()
    files = {path: (text if present else "", 0o755 if text.startswith("#!") else 0o644) for path, text in asked}
    return next(Path(path).name for path in files if path.endswith(".timer")), files


def set_all(module: AnsibleModule, run: Run) -> None:
    """Have the tool and its timer; look once at once, so that a first file is there."""
    folder = Path(module.params["folder"])
    missing = not folder.is_dir()
    if missing and not module.check_mode:
        folder.mkdir(mode=0o755, parents=True)
    installed = install(module, run)
    others = other_wheels(module)
    if not module.check_mode:
        for path in others:
            path.unlink()
    timer, files = texts(module, present=True)
    diff = converge(module, timer, files)
    if (installed or diff) and not module.check_mode:
        service = timer.replace(".timer", ".service")
        status, out, err = run(["systemctl", "start", service])
        if status != 0:
            module.fail_json(msg=f"{service} does not run: {(err or out).strip()}; `journalctl -u {service}` says why")
    module.exit_json(changed=installed or missing or bool(diff or others), diff=diff)


def take_away(module: AnsibleModule, run: Run) -> None:
    """No timer, no tool, no file that would grow old; one environment stays for a rollback."""
    params = module.params
    timer, files = texts(module, present=False)
    report = Path(params["folder"], "nodectl.prom")
    files[str(report)] = ("", 0o644)
    diff = converge(module, timer, files) if systemd_runs() else []
    link, store = Path(params["link"]), Path(params["store"])
    doomed = other_wheels(module) + [link] * link.is_symlink()
    if not module.check_mode:
        if diff:  # a run that goes on would write its file once more
            run(["systemctl", "stop", timer.replace(".timer", ".service")])
            if report.exists():
                report.unlink()
        for path in doomed:
            path.unlink()
        if store.is_dir():
            clean(store, link)
            prune(store, link, KEPT)
    module.exit_json(changed=bool(doomed or diff), diff=diff)


def main() -> None:
    """Take it away; or refuse what cannot be, and have it where that is asked for."""
    path, text = {"type": "path", "required": True}, {"type": "str", "default": ""}
    lines = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["look", "present", "absent"], "required": True},
            "store": path,
            "link": path,
            "folder": path,
            "files": {"type": "dict", "required": True},
            "wheel": {"type": "path", "default": ""},
            "wheel_folder": path,
            "wheel_digest": text,
            "requirements": lines,
            "locked": lines,
            "uv": {"type": "path", "default": "/opt/nodectl/bin/uv"},
            "wheelhouse": text,
            "index": text,
        },
        supports_check_mode=True,
    )
    run, state = runner(module), module.params["state"]
    if state == "absent":
        take_away(module, run)
    reason = refusal(run) if systemd_runs() else ""
    if reason:
        module.fail_json(msg=reason)
    if state == "present" and systemd_runs():
        set_all(module, run)
    python, _unused = interpreter(run)
    version = version_of(run, python) if python else ""
    seen = {"python": python, "python_version": version, "machine": platform.machine()}
    module.exit_json(changed=False, systemd=systemd_runs(), **seen)


if __name__ == "__main__":
    main()
