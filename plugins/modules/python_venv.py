#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: a virtual environment with pinned packages, made whole by uv, then made the current one."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import env_store as store_of
from ansible_collections.nodectl.fleet.plugins.module_utils import python_env, python_lock
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference


def interpreter_version(module: AnsibleModule) -> str:
    """Return the version of the interpreter, installed or planned; fail if the stack has no wheels for it."""
    wanted = module.params
    python, low, high = wanted["python"], wanted["python_min"], wanted["python_max"]
    version = str(wanted["python_version"])
    if os.path.lexists(python) or not version:
        status, out, err = module.run_command([python, "-c", python_env.VERSION])
        if status != 0:
            module.fail_json(msg=f"{python} does not run: {err.strip()}; set python_interpreter to one that does")
        version = out.strip()
    if not python_env.serves(version, low, high):
        reason = f"{python} is Python {version}, and the stack's wheels exist for {low} to {high}"
        module.fail_json(msg=f"{reason}; set python_interpreter to one of those, or leave it empty to have one chosen")
    return version


def holds(path: Path, wanted: dict[str, Any], version: str) -> list[str]:
    """Return requirements that an environment lacks; all where its interpreter is gone or another."""
    made_with = python_env.venv_python(path)
    if python_env.key(made_with)[:2] != python_env.key(version)[:2]:
        return list(wanted["requirements"])
    return python_env.lacking(wanted["requirements"], python_env.distributions(path))


def name_of(wanted: dict[str, Any], version: str) -> str:
    """Name of the environment in the store; whatever decides its content is in it."""
    torch = next((pin.partition("==")[2] for pin in wanted["requirements"] if pin.startswith("torch==")), "none")
    python = f"{wanted['python']} {'.'.join(version.split('.')[:2])}"
    wheel = [wanted["wheel_digest"]] if wanted["wheel"] else []
    decides = [sorted(wanted["requirements"]), sorted([*wanted["constraints"], *wheel]), python, wanted["index"]]
    digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:12]
    return f"nodectl-{digest}" if wheel else f"torch-{torch.replace('+', '-')}-{digest}"


def look(module: AnsibleModule) -> dict[str, Any]:
    """Everything that is known without changing anything; fails if the interpreter cannot serve."""
    wanted, link = module.params, Path(module.params["path"])
    version = interpreter_version(module)
    name, store = name_of(wanted, version), Path(wanted["store"])
    ready = [path for path in sorted(store.glob(name + "*"), reverse=True) if not holds(path, wanted, version)]
    current = store_of.current(link)
    shown = current or link
    return {
        "complete": current in ready,
        "missing": [] if current in ready else holds(shown, wanted, version) or list(wanted["requirements"]),
        "found": python_env.distributions(shown) if python_env.venv_python(shown) else {},
        "environment": str(current or ""),
        "interpreter": version,
        "machine": platform.machine(),
        "uv_present": os.access(wanted["uv"], os.X_OK),
        "name": name,
        "ready": [str(path) for path in ready],
    }


def ready_beside(module: AnsibleModule, version: str) -> Path | None:
    """Return a complete environment beside the wheelhouse, for this interpreter."""
    house = module.params["wheelhouse"]
    ready = Path(house.rstrip("/")).parent / "venv"
    if not house.startswith("/") or module.params["wheel"] or holds(ready, module.params, version):
        return None
    present = python_env.distributions(ready)
    pins = [pin for pin in module.params["constraints"] if python_env.canonical(pin.partition("==")[0]) in present]
    return None if python_env.lacking(pins, present) else ready


def fill(module: AnsibleModule, aside: Path, cache: Path) -> None:
    """Install what the lock or the requirements name; LockError if that cannot be."""
    wanted = module.params
    house = wanted["wheelhouse"]
    if house.startswith("/") and not any(Path(house).glob("*.whl")):
        module.fail_json(
            msg=f"no wheel in {house} on this host; fill it, or unset pytorch_wheelhouse (in nodectl's inventory: "
            "nodectl_wheelhouse)"
        )
    env = {name: str(value) for name, value in wanted["build_environment"].items()}
    env.update(python_lock.SETTINGS, UV_CACHE_DIR=str(cache / "uv-cache"))
    for argv in python_lock.install_argvs(cache, aside / "bin" / "python", wanted):
        status, out, err = module.run_command(argv, environ_update=env)
        if status != 0:
            raise python_lock.failed(f"install {' '.join(wanted['requirements'])}", out, err)


def by_uv(module: AnsibleModule, *words: str) -> None:
    """Run uv with its own settings left out; the module fails with what it says."""
    argv = [module.params["uv"], *words, "--no-config"]
    status, out, err = module.run_command(argv, environ_update={"UV_PYTHON_DOWNLOADS": "never"})
    if status != 0:
        module.fail_json(msg=f"{' '.join(argv)} ended with {status}:\n{(out + err).strip()}")


def build(module: AnsibleModule, state: dict[str, Any]) -> Path:
    """Make a new environment in the store, aside, and rename it when it is whole."""
    wanted, store = module.params, Path(module.params["store"])
    os.umask(0o022)  # for everybody who trains here, whatever root's own habit
    if not state["uv_present"]:
        module.fail_json(
            msg=f"no uv at {wanted['uv']} on this host; `nodectl provision --tags python` brings it, or set nodectl_uv "
            "to where it is"
        )
    final = store_of.next_generation(store, state["name"])
    aside, cache = store / f"{store_of.PARTIAL}{final.name}", store / f"{store_of.PARTIAL}cache"
    cache.mkdir(exist_ok=True)
    # programs find their interpreter from their own place, so the folder may be renamed
    by_uv(module, "venv", "--relocatable", "--python", wanted["python"], str(aside))
    if wanted["wheel"]:
        by_uv(module, "pip", "install", "--no-deps", "--python", str(aside / "bin" / "python"), wanted["wheel"])
    ready = ready_beside(module, state["interpreter"])
    if ready:
        store_of.link_packages(ready, aside, final)
    else:
        fill(module, aside, cache)
        store_of.sync(store)  # what is renamed must be on the disk first
    missing = holds(aside, wanted, state["interpreter"])
    if missing:
        module.fail_json(msg=f"uv ended well, but these are missing: {' '.join(missing)}")
    note = {name: wanted[name] for name in ("requirements", "constraints", "python", "index", "wheelhouse")}
    (aside / "nodectl-environment.json").write_text(json.dumps(note, indent=1, sort_keys=True) + "\n")
    aside.rename(final)
    return final


def make(module: AnsibleModule) -> list[str]:
    """Have the environment in the store and let the link name it; the names of those that went."""
    link, store = Path(module.params["path"]), Path(module.params["store"])
    link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with store_of.alone(store):
        store_of.clean(store, link)
        state = look(module)
        if link.is_dir() and not link.is_symlink():
            module.fail_json(msg=f"{link} is a folder, where a link to the current environment belongs: move it away")
        if not state["complete"]:
            target = Path(state["ready"][0]) if state["ready"] else build(module, state)
            store_of.activate(link, target)
        gone = store_of.prune(store, link, module.params["keep"])
        store_of.clean(store, link)
    return gone


def pins(held: dict[str, str]) -> str:
    """Return the distributions as requirements, one name==version a line."""
    return "".join(f"{name}=={held[name]}\n" for name in sorted(held))


def main() -> None:
    """Look; where asked for, make it so, and look again."""
    text, place = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "path": place,
            "store": place,
            "keep": {"type": "int", "default": 2},
            "python": place,
            "python_version": {"type": "str", "default": ""},
            "python_min": text,
            "python_max": text,
            "requirements": {"type": "list", "elements": "str", "required": True},
            "constraints": {"type": "list", "elements": "str", "default": []},
            "locked": {"type": "list", "elements": "str", "default": []},
            "uv": place,
            "index": text,
            "index_packages": {"type": "list", "elements": "str", "default": []},
            "wheelhouse": {"type": "str", "default": ""},
            "wheel": {"type": "path", "default": ""},
            "wheel_digest": {"type": "str", "default": ""},
            "build_environment": {"type": "dict", "default": {}},
            "state": {"type": "str", "choices": ["look", "present"], "default": "present"},
        },
        supports_check_mode=True,
    )
    before, path = look(module), module.params["path"]
    if module.params["state"] == "look" or before["complete"]:
        module.exit_json(changed=False, **before)
    if module.check_mode:
        foreseen = pins(before["found"]) + "".join(f"{requirement}\n" for requirement in before["missing"])
        module.exit_json(changed=True, diff=difference(path, pins(before["found"]), foreseen), **before)
    try:
        gone = make(module)
    except python_lock.LockError as error:
        module.fail_json(msg=f"{error}\n(packages come from {module.params['wheelhouse'] or module.params['index']})")
    except OSError as error:
        module.fail_json(msg=f"{error}; look at {module.params['store']}")
    after = look(module)
    if not after["complete"]:
        module.fail_json(msg=f"the environment lacks {' '.join(after['missing'])}", **after)
    diff = difference(path, pins(before["found"]), pins(after["found"]))
    module.exit_json(changed=True, diff=diff, pruned=gone, **after)


if __name__ == "__main__":
    main()
