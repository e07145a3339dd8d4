"""Ansible callback for benchmarks/provision.py: the outcome of each task on each host as one JSON line, in a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: task_results
type: notification
short_description: Outcomes of all tasks as JSON lines in the file TASK_RESULTS
description: One line a task and host.
author: The nodectl authors
options: {}
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # Ansible ships no types
    """Writes while the run goes on: a run that is cut off leaves what it did."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "task_results"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._file = Path(os.environ["TASK_RESULTS"]).open("a", encoding="utf-8")  # noqa: SIM115  # to the run's end

    def v2_runner_on_ok(self, result: Any) -> None:
        """Keep the outcome of a task that changed something or not."""
        self._write(result, "changed" if result.is_changed() else "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Ignored failures are outcomes, too."""
        self._write(result, "ignored" if ignore_errors else "failed")

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Not for this host."""
        self._write(result, "skipped")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep that the host did not answer."""
        self._write(result, "unreachable")

    def _write(self, result: Any, outcome: str) -> None:
        role, task = result.task._role, result.task
        line = {"role": role.get_name() if role else "", "task": task.name or task.action, "outcome": outcome}
        print(json.dumps({**line, "host": result.host.get_name()}), file=self._file, flush=True)
