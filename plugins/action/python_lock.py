"""Ansible action: an environment's lock is made once, by the first host that needs it, and kept on the controller."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        arguments = self._task.args
        folder = Path(arguments["folder"])
        path = folder / lock_name(arguments)
        answer = {"changed": False, "lock": str(path)}
        if path.is_file():
            return {**result, **answer, "pins": read(path)}
        if self._task.check_mode:
            return {**result, **answer, "pins": []}
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".making").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not path.is_file():
                made = self._execute_module("nodectl.fleet.python_lock", module_args=arguments, task_vars=task_vars)
                if made.get("failed"):
                    return {**result, **made}
                write(path, made["pins"], str((task_vars or {}).get("inventory_hostname", "a host")))
        return {**result, **answer, "pins": read(path)}
