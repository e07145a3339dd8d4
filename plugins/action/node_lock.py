# SPDX-License-Identifier: Apache-2.0 (goes together with the GNU General Public License v3.0 of Ansible itself)
"""Ansible action: the controller's half of `node_lock`, which knows whether the run that holds a node still lives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


def started(pid: int) -> str:
    """When a process of this machine started, in the kernel's words; empty where nobody can tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def has_ended(controller: Mapping[str, Any]) -> bool:
    """The run was started on this machine, and its process is no more."""
    try:
        host, pid, start = str(controller["host"]), int(controller["pid"]), str(controller["start"])
    except (KeyError, TypeError, ValueError):
        return False
    if host != socket.gethostname() or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return bool(start) and started(pid) not in ("", start)


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Runs the module of the same name on the node, again where it found a run that has ended."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the module says; `nodectl` holds the nodes by itself."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if os.environ.get("NODECTL_RUN"):
            return {**result, "changed": False, "held": False}
        # a task is run by a child of ansible-playbook
        pid = os.getppid()
        controller = {"host": socket.gethostname(), "pid": pid, "start": started(pid)}
        arguments = {**self._task.args, "controller": controller}
        done = self._execute_module("nodectl.fleet.node_lock", module_args=arguments, task_vars=task_vars)
        holder = done.get("holder") or {}
        if has_ended(holder.get("controller") or {}):
            arguments["stale"] = str(holder.get("token", ""))
            done = self._execute_module("nodectl.fleet.node_lock", module_args=arguments, task_vars=task_vars)
        return {**result, **done}
