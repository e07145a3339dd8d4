#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: an interpreter that the stack's wheels exist for: an installed one, else one that uv brings."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import files, python_env
from ansible_collections.nodectl.fleet.plugins.module_utils.boot_service import runner
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference


def minors(low: str, high: str) -> list[str]:
    """Versions as major.minor from the newest to the oldest; both are of one major version."""
    (major, first), (_unused, last) = python_env.key(low)[:2], python_env.key(high)[:2]
    return [f"{major}.{minor}" for minor in range(last, first - 1, -1)]


def installed(module: AnsibleModule) -> tuple[str, str]:
    """(path, version) of the first interpreter that serves; empty if none does."""
    wanted = module.params
    low, high = wanted["min"], wanted["max"]
    interpreters = sorted(Path(wanted["folder"]).glob("cpython-*/bin/python3.[0-9]*"), reverse=True)
    managed = [str(path) for minor in minors(low, high) for path in interpreters if path.name == f"python{minor}"]
    others = [f"{place}/python{minor}" for place in ("/usr/bin", "/usr/local/bin") for minor in minors(low, high)]
    for path in filter(os.path.exists, ["/usr/bin/python3", *others, *managed]):
        version = python_env.version_of(runner(module), path)
        if python_env.serves(version, low, high):
            return path, version
    return "", ""


def look(module: AnsibleModule) -> dict[str, Any]:
    """Return the interpreter and how to have it; fails if none can be had."""
    wanted = module.params
    low, high, chosen = wanted["min"], wanted["max"], wanted["interpreter"]
    host = {"uv_present": os.access(wanted["uv"], os.X_OK), "machine": platform.machine()}
    if chosen:
        version = python_env.version_of(runner(module), chosen)
        if not python_env.serves(version, low, high):
            state = f"is Python {version}" if version else "does not run"
            remedy = "set python_interpreter to one of those, or leave it empty to have one chosen"
            module.fail_json(msg=f"{chosen} {state}, and the stack's wheels exist for {low} to {high}; {remedy}")
        return {"path": chosen, "version": version, "how": "present", **host}
    path, version = installed(module)
    if path:
        return {"path": path, "version": version, "how": "present", **host}
    place = f"{wanted['folder']}/cpython-{high}-linux-{host['machine']}-gnu/bin/python{high}"
    return {"path": place, "version": high, "how": "uv", **host}


def install(module: AnsibleModule, plan: dict[str, Any]) -> None:
    """Run `uv python install`."""
    wanted = module.params
    if not plan["uv_present"]:
        module.fail_json(
            msg=f"no uv at {wanted['uv']} on this host; set python_uv (in nodectl's inventory: nodectl_uv) "
            "to where it is"
        )
    mirror = f"file://{wanted['mirror']}" if wanted["mirror"].startswith("/") else wanted["mirror"]
    command = [wanted["uv"], "python", "install", "--no-bin", "--install-dir", wanted["folder"]]
    command += [*(["--mirror", mirror] if mirror else []), "--"]
    command += [f"cpython-{plan['version']}-linux-{plan['machine']}-gnu"]
    environment = {"UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "UV_NO_CACHE": "1"}
    status, out, err = module.run_command(command, environ_update=environment)
    if status != 0:
        here = python_env.version_of(runner(module), "/usr/bin/python3") or "missing"
        reason = "\n".join((out + err).strip().splitlines()[-8:])
        module.fail_json(
            msg=f"python3 on this host is {here}, the stack's wheels exist for {wanted['min']} to {wanted['max']}, and "
            "uv cannot bring one. Set python_mirror (in nodectl's inventory: nodectl_python_mirror) to a mirror or "
            f"folder that holds uv's builds on the host, install python{wanted['max']} from your distribution, name an "
            f"interpreter in python_interpreter, or choose a stack for Python {here}. uv says: {reason}"
        )
    files.relabel(wanted["folder"], below=True)


def main() -> None:
    """Look; where asked for, make it so, and look again."""
    text, place = {"type": "str", "default": ""}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "interpreter": text,
            "min": {"type": "str", "required": True},
            "max": {"type": "str", "required": True},
            "folder": place,
            "uv": place,
            "mirror": text,
            "state": {"type": "str", "choices": ["look", "present"], "default": "present"},
        },
        supports_check_mode=True,
    )
    before = look(module)
    if module.params["state"] == "look" or before["how"] == "present":
        module.exit_json(changed=False, **before)
    if not module.check_mode:
        install(module, before)
        after = look(module)
        if after["how"] != "present":
            module.fail_json(
                msg=f"uv ended well, but Python {before['version']} is not in {module.params['folder']}", **after
            )
        before = after
    module.exit_json(changed=True, diff=difference("python", "", f"{before['path']}\n"), **before)


if __name__ == "__main__":
    main()
