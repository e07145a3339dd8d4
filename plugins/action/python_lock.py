"""Ansible action: an environment's lock is made once, by the first host that needs it, and kept on the controller."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.action import ActionBase

# what decides which versions uv chooses, besides the day; the interpreter's patch level does not
_DECIDES = ("requirements", "constraints", "index", "wheelhouse", "machine")


def lock_name(arguments: Mapping[str, Any]) -> str:
    """The file's name: torch's version for the eye, then a digest of all that decides."""
    pins = [str(pin) for pin in arguments["requirements"]]
    torch = next((pin.partition("==")[2] for pin in pins if pin.startswith("torch==")), "none")
    python = ".".join(str(arguments["python_version"]).split(".")[:2])
    text = json.dumps([python, *(arguments.get(name) for name in _DECIDES)], default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"torch-{torch.replace('+', '-')}-py{python}-{arguments['machine']}-{digest}.txt"


def read(path: Path) -> list[str]:
    """The pins of a lock; its comments are for people."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def write(path: Path, pins: list[str], host: str) -> None:
    """The whole file or none."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    head = f"# resolved once on {host}, for all hosts of this kind; delete this file to have versions chosen anew\n"
    aside.write_text(head + "".join(f"{pin}\n" for pin in pins), encoding="utf-8")
    aside.replace(path)


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Hosts that run at once wait for the first of them."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The kept pins, else those that this host resolves; in check mode none is made."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments, name = dict(self._task.args), lock_name(self._task.args)
        looking, controllers_uv = bool(arguments.pop("look", False)), str(arguments.pop("controller_uv", ""))
        # what is only looked at is known to the other hosts of this run, and to nobody else
        folder = Path(constants.DEFAULT_LOCAL_TMP if looking else arguments["folder"])
        lock = Path(arguments["folder"]) / name if arguments["folder"] else None
        answer = {"changed": False, "lock": str(lock or "")}
        if lock and lock.is_file():
            return {**result, **answer, "pins": read(lock)}
        if self._task.check_mode and not looking:
            return {**result, **answer, "pins": []}
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        with (folder / ".making").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not path.is_file():
                if controllers_uv:
                    arguments["uv"] = self._borrowed(controllers_uv)
                made = self._execute_module("nodectl.fleet.python_lock", module_args=arguments, task_vars=task_vars)
                if made.get("failed"):
                    more = f": nothing was changed; {self._source(arguments)}" if looking else ""
                    return {**result, **made, "msg": f"{made.get('msg', '')}{more}"}
                write(path, made["pins"], str((task_vars or {}).get("inventory_hostname", "a host")))
        return {**result, **answer, "pins": read(path)}

    def _source(self, arguments: dict[str, Any]) -> str:
        """Where the host looked, and what to do about what is not there."""
        if arguments.get("wheelhouse"):
            return f"wheels come from {arguments['wheelhouse']} alone (nodectl_wheelhouse): put what is missing there"
        return f"wheels come from {arguments['index']}: hosts that cannot reach it need their own in nodectl_wheelhouse"

    def _borrowed(self, uv: str) -> str:
        """The controller's uv in the folder of this task on the host, which goes with the task."""
        folder = self._connection._shell.tmpdir or self._make_tmp_path()
        place = self._connection._shell.join_path(folder, "uv")
        self._transfer_file(uv, place)
        self._fixup_perms2((folder, place), execute=True)
        return str(place)
