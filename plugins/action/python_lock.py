# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible action: an environment's lock, made once by the controller's uv for a kind of host, and kept there."""

from __future__ import annotations

import email
import fcntl
import hashlib
import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.nodectl.fleet.plugins.module_utils import python_lock
from ansible_collections.nodectl.fleet.plugins.module_utils.python_lock import LockError

_LIST: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
_SPEC: dict[str, Any] = {
    **{name: {"type": "str", "required": True} for name in ("folder", "python_version", "machine", "index")},
    **{name: {"type": "str", "default": ""} for name in ("controller_uv", "wheelhouse", "wheel")},
    **dict.fromkeys(("requirements", "constraints", "index_packages"), _LIST),
}
# what decides which versions uv chooses, besides the day; the interpreter's patch level does not
_DECIDES = ("requirements", "constraints", "index", "wheelhouse", "machine")
# the host reports these, and they become part of a file's name and of a command
_PLAIN = {"python_version": r"\d{1,3}(\.\d{1,3}){1,2}", "machine": r"[A-Za-z0-9_]{1,32}"}
_RESOLVE_S = 900.0
_HEAD = "# resolved once on the controller for all hosts of this kind; delete this file to have versions chosen again\n"


def lock_name(wanted: Mapping[str, Any]) -> str:
    """Return the file's name: torch's version for the eye, then a digest of all that decides."""
    torch = next((pin.partition("==")[2] for pin in wanted["requirements"] if pin.startswith("torch==")), "none")
    label = "nodectl" if wanted["wheel"] else f"torch-{re.sub(r'[^A-Za-z0-9._]', '-', torch)}"
    python = ".".join(str(wanted["python_version"]).split(".")[:2])
    text = json.dumps([python, *(wanted[name] for name in _DECIDES)], default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{label}-py{python}-{wanted['machine']}-{digest}.txt"


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Hosts that run at the same time wait for the first of them."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the kept lock, else a new one, which check mode does not keep; none for the host's own wheels."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        wanted, host = self.validate_argument_spec(_SPEC)[1], (task_vars or {}).get("inventory_hostname", "a host")
        for name, form in _PLAIN.items():
            if not re.fullmatch(form, str(wanted[name])):
                raise AnsibleError(f"{host} says {name} '{str(wanted[name])[:40]}': nothing was locked or installed")
        if wanted["wheel"]:
            wanted["requirements"] = _needs_of(Path(wanted["wheel"]))
            result["wheel_digest"] = hashlib.sha256(Path(wanted["wheel"]).read_bytes()).hexdigest()
        result.update(changed=False, requirements=wanted["requirements"], lock="", locked=[], pins=[])
        if not wanted["folder"] or not wanted["controller_uv"] or wanted["wheelhouse"].startswith("/"):
            return result
        kept = Path(wanted["folder"]) / lock_name(wanted)
        made = kept if kept.is_file() or not self._task.check_mode else Path(constants.DEFAULT_LOCAL_TMP) / kept.name
        try:
            lines = list(_locked(made, wanted).values())
        except LockError as error:
            return {**result, "failed": True, "msg": f"{error}: nothing was changed; {_sources(wanted)}"}
        return {**result, "lock": str(kept), "locked": lines, "pins": [line.partition(" ")[0] for line in lines]}


def _locked(path: Path, wanted: Mapping[str, Any]) -> dict[str, str]:
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / ".making").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not path.is_file():
                aside = path.with_name(f".{path.name}.{os.getpid()}")
                aside.write_text(_HEAD + _resolved(wanted), encoding="utf-8")
                aside.replace(path)
    try:
        found: dict[str, str] = python_lock.read(path.read_text(encoding="utf-8"))
    except LockError as error:
        raise LockError(f"{path} is no lock: {error}; delete it to have versions chosen again") from None
    return found


def _resolved(wanted: Mapping[str, Any]) -> str:
    doing = f"resolve {' '.join(wanted['requirements'])}"
    with tempfile.TemporaryDirectory(prefix="nodectl-lock-", dir=constants.DEFAULT_LOCAL_TMP) as folder:
        argv = python_lock.compile_argv(Path(folder), wanted)
        env = {**os.environ, **python_lock.SETTINGS, "UV_CACHE_DIR": f"{folder}/uv-cache"}
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_RESOLVE_S, env=env)
        except (OSError, subprocess.SubprocessError) as error:
            raise python_lock.failed(doing, "", str(error)) from None
    if done.returncode:
        raise python_lock.failed(doing, done.stdout, done.stderr)
    return "".join(f"{line}\n" for line in python_lock.read(done.stdout).values())


def _needs_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        needs = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    return [str(need) for need in needs if "extra ==" not in str(need)]


def _sources(wanted: Mapping[str, Any]) -> str:
    if wanted["wheelhouse"]:
        return f"wheels come from {wanted['wheelhouse']} alone (nodectl_wheelhouse): put what is missing there"
    return (
        f"wheels come from {wanted['index']}, which this machine must reach too: name wheels of the hosts in "
        "nodectl_wheelhouse, or set nodectl_locks to '' to let each host choose versions"
    )
