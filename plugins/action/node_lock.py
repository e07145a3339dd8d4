# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible action: the controller's half of `node_lock`, which knows whether the run that holds a node still lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase


def has_ended(controller: Mapping[str, Any]) -> bool:
    """Return whether the run was started on this machine and its process is no more.

    Nobody can tell without nodectl.
    """
    try:
        from nodectl.common import process
    except ImportError:
        return False
    return process.has_ended(controller)


def this_run() -> dict[str, Any]:
    """Return what `has_ended` knows this run by: a task is run by a child of ansible-playbook."""
    pid = os.getppid()
    try:
        from nodectl.common import process
    except ImportError:
        return {}
    return process.controller(pid)


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Runs the module of the same name on the node, again where it found a run that has ended."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module says; `nodectl` holds the nodes by itself."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if os.environ.get("NODECTL_HOLDS") and not self._task.check_mode:
            return {**result, "changed": False, "held": False}
        arguments = {**self._task.args, "controller": this_run()}
        done = self._execute_module("nodectl.fleet.node_lock", module_args=arguments, task_vars=task_vars)
        holder = done.get("holder") or {}
        if has_ended(holder.get("controller") or {}):
            arguments["stale"] = str(holder.get("token", ""))
            done = self._execute_module("nodectl.fleet.node_lock", module_args=arguments, task_vars=task_vars)
        return {**result, **done}
