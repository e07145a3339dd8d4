"""Runs an Ansible module as Ansible does: its own process, its arguments on standard input, its answer in JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodectl.common.resources import share_dir

_SCRIPT = """
import runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = sys.stdin.buffer.read(), "legacy"
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def run_module(
    path: str | Path,
    arguments: Mapping[str, object],
    *,
    folder: Path,
    check: bool = False,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The answer of the module at `path` below the share; `folder` is for its temporary files."""
    internal = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_tmpdir": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(share_dir() / path)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, **internal}}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    answer: dict[str, Any] = json.loads(done.stdout or json.dumps({"msg": done.stderr, "failed": True}))
    return answer
