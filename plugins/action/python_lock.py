# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible action: an environment's lock is made once, on the controller where that can be, and kept there."""

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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.nodectl.fleet.plugins.module_utils import python_lock
from ansible_collections.nodectl.fleet.plugins.module_utils.python_lock import LockError

# what decides which versions uv chooses, besides the day; the interpreter's patch level does not
_DECIDES = ("requirements", "constraints", "index", "wheelhouse", "machine")
# a host says these, and they become part of a file's name and of a command
_PLAIN = {"python_version": r"\d{1,3}(\.\d{1,3}){1,2}", "machine": r"[A-Za-z0-9_]{1,32}"}
_RESOLVE_S = 900.0


def lock_name(arguments: Mapping[str, Any]) -> str:
    """Return the file's name: torch's version for the eye, then a digest of all that decides."""
    pins = [str(pin) for pin in arguments["requirements"]]
    torch = next((pin.partition("==")[2] for pin in pins if pin.startswith("torch==")), "none")
    label = "nodectl" if arguments.get("wheel") else f"torch-{re.sub(r'[^A-Za-z0-9._]', '-', torch)}"
    python = ".".join(str(arguments["python_version"]).split(".")[:2])
    text = json.dumps([python, *(arguments.get(name) for name in _DECIDES)], default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{label}-py{python}-{arguments['machine']}-{digest}.txt"


def read(path: Path) -> list[str]:
    """Return the lines of a lock; its comments are for people."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def write(path: Path, locked: Iterable[str], where: str) -> None:
    """Write the whole file or none."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    head = f"# resolved once on {where}, for all hosts of this kind; delete this file to have versions chosen anew\n"
    aside.write_text(head + "".join(f"{line}\n" for line in locked), encoding="utf-8")
    aside.replace(path)


def _run(argv: list[str], env: dict[str, str]) -> tuple[int, str, str]:
    """Run a program of the controller; one that is not there or does not end answers with a status of its own."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=_RESOLVE_S, env={**os.environ, **env}
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Hosts that run at once wait for the first of them."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the kept lock, else a new one; in check mode none is made."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments, host = dict(self._task.args), str((task_vars or {}).get("inventory_hostname", "a host"))
        for name, form in _PLAIN.items():
            if not re.fullmatch(form, str(arguments[name])):
                raise AnsibleError(f"{host} says {name} '{str(arguments[name])[:40]}': nothing was locked or installed")
        if arguments.get("wheel"):
            arguments["requirements"] = _needs_of(Path(arguments["wheel"]))
        result["requirements"] = arguments["requirements"]
        looking = bool(arguments.pop("look", False))
        # what is only looked at is known to the other hosts of this run, and to nobody else
        folder = Path(constants.DEFAULT_LOCAL_TMP if looking else arguments["folder"] or constants.DEFAULT_LOCAL_TMP)
        lock = Path(arguments["folder"]) / lock_name(arguments) if arguments["folder"] else None
        try:
            if lock and lock.is_file():
                return {**result, **_answer(read(lock), lock)}
            if self._task.check_mode and not looking:
                return {**result, "changed": False, "lock": str(lock or ""), "pins": [], "locked": []}
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / lock_name(arguments)
            with (folder / ".making").open("w") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                if not path.is_file():
                    result["warnings"] = self._make(path, arguments, looking, host, task_vars)
            return {**result, **_answer(read(path), lock)}
        except LockError as error:
            return {**result, "failed": True, "changed": False, "msg": str(error)}

    def _make(self, path: Path, arguments: dict[str, Any], looking: bool, host: str, task_vars: Any) -> list[str]:
        """Resolve and write the lock, and return warnings; LockError if that cannot be."""
        uv = str(arguments.pop("controller_uv", ""))
        why_not, where = "", "the controller"
        locked = [] if looking else _resolved_here(arguments, uv)
        if isinstance(locked, str):
            why_not, locked = locked, []
        if not locked:
            if looking and uv:
                arguments["uv"] = self._borrowed(uv)
            made = self._execute_module("nodectl.fleet.python_lock", module_args=arguments, task_vars=task_vars)
            if made.get("failed"):
                more = f": nothing was changed; {_sources(arguments)}" if looking else ""
                raise LockError(f"{made.get('msg', '')}{more}")
            locked, where = [str(line) for line in made.get("locked", ())], host
        try:
            judged = python_lock.judge(locked, arguments["requirements"], arguments.get("constraints", ()))
            write(path, judged.values(), where)
        except LockError as error:
            raise LockError(f"{where} resolved to what is no lock: {error}; nothing was kept or installed") from None
        if not why_not or task_vars.get("nodectl_lab"):  # a lab host is this machine
            return []
        kept = (
            f"the versions and digests of {len(judged)} packages in {path} are those that {where} chose, for all hosts"
        )
        return [f"{kept} of this kind: {why_not}; read them before you trust them"]

    def _borrowed(self, uv: str) -> str:
        """Copy the controller's uv into the folder of this task on the host, which goes with the task."""
        folder = self._connection._shell.tmpdir or self._make_tmp_path()
        place = self._connection._shell.join_path(folder, "uv")
        self._transfer_file(uv, place)
        self._fixup_perms2((folder, place), execute=True)
        return str(place)


def _needs_of(wheel: Path) -> list[str]:
    """Return what a wheel of the controller needs, without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        needs = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    return [str(need) for need in needs if "extra ==" not in str(need)]


def _answer(lines: list[str], lock: Path | None) -> dict[str, Any]:
    """Return what a task registers; LockError for a lock that somebody spoilt."""
    try:
        locked = python_lock.read(lines)
    except LockError as error:
        raise LockError(f"{lock} is no lock: {error}; delete it to have versions chosen anew") from None
    return {
        "changed": False,
        "lock": str(lock or ""),
        "pins": python_lock.pins(locked),
        "locked": list(locked.values()),
    }


def _resolved_here(arguments: Mapping[str, Any], uv: str) -> list[str] | str:
    """Resolve with the controller's uv for the host's kind; why not, where it has none or its uv finds no answer."""
    if str(arguments.get("wheelhouse", "")).startswith("/"):
        return f"the wheels lie in its own {arguments['wheelhouse']}"
    if not uv:
        return "the controller has no uv"
    target = ["--generate-hashes", "--python-version", str(arguments["python_version"])]
    target += ["--python-platform", f"{arguments['machine']}-unknown-linux-gnu"]
    with tempfile.TemporaryDirectory(prefix="nodectl-lock-", dir=constants.DEFAULT_LOCAL_TMP) as folder:
        try:
            found: list[str] = python_lock.resolve(_run, uv, Path(folder), arguments, target)
            return found
        except LockError as error:  # the controller may reach less than the hosts do
            return "the controller's own uv says: " + str(error).strip().splitlines()[-1].strip()


def _sources(arguments: Mapping[str, Any]) -> str:
    """Say where the host looked, and what to do about what is not there."""
    if arguments.get("wheelhouse"):
        return f"wheels come from {arguments['wheelhouse']} alone (nodectl_wheelhouse): put what is missing there"
    return f"wheels come from {arguments['index']}: hosts that cannot reach it need their own in nodectl_wheelhouse"
