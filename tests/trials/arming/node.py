"""A node in a folder of a test: a file that a trial changes, nodectl's modules, and guards as processes."""

from __future__ import annotations

import importlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.roles.run_module import run_module

PACKAGE = "ansible_collections.nodectl.fleet.plugins.module_utils"


def utils(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


class Node:
    """A file that a trial changes, the modules, and the guard's processes."""

    def __init__(self, folder: Path) -> None:
        # a guard ends all of this machine that is marked with its trial's name
        self.folder, self.root, self.name = folder, folder / "state", f"20260101T000000Z-trial-{secrets.token_hex(3)}"
        self.file = folder / "nccl.conf"
        self.file.write_text("former\n")
        self.trial = utils("undo.trials").Trials(str(self.root)).trial(self.name)
        self.guards: list[subprocess.Popen[bytes]] = []

    def module(self, name: str, **arguments: Any) -> dict[str, Any]:
        arguments = {"folder": str(self.root), **arguments}
        return run_module(f"plugins/modules/{name}.py", arguments, folder=self.folder)

    def record(self, *paths: str) -> None:
        touches = {"a_touches": {"paths": [str(self.file), *paths]}}
        answer = self.module("node_record", state="begin", run=self.name, touches=touches)
        assert answer["kept"], answer

    def folder_of_a_trial(self, lease_s: float = 1.0, settle_s: float = 0.2, boot: str | None = None) -> None:
        """As `node_trial` makes it, without a guard."""
        about = {"by": "me@here", "what": "a test", "since": time.time(), "lease_s": lease_s, "settle_s": settle_s}
        about["boot"] = utils("undo.trials").boot_id() if boot is None else boot
        Path(self.trial.folder).parent.mkdir(parents=True, exist_ok=True)
        self.trial.create(about, sys.executable, os.getuid())

    def guard(self, **environment: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-BEs", self.trial.path("lib"), self.trial.folder]
        process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"], **environment}, stderr=subprocess.PIPE)
        self.guards.append(process)
        # between its lock and its number a guard is 0
        self.until(lambda: self.trial.guard() or process.poll() is not None)
        return process

    def until(self, holds: Callable[[], object], within_s: float = 20.0) -> None:
        ends = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < ends, (self.trial.state(), self.file.read_text())
            time.sleep(0.02)

    def state(self) -> str:
        return str(self.trial.state().get("state"))
