"""Runs an Ansible module as Ansible does: its own process, its arguments as it reads them, its answer in JSON."""

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.common.resources import share_dir

_SERVER = Path(__file__).with_name("module_server.py")


@cache
def _server() -> bytes:
    """The address of this process's server, which ends with it."""
    process = subprocess.Popen([sys.executable, _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    atexit.register(process.wait)
    atexit.register(process.stdin.close)
    return bytes.fromhex(process.stdout.readline())


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
    request = {
        "path": str(share_dir() / path),
        "arguments": json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, **internal}}),
        "env": {**os.environ, **(env or {})},
        "cwd": str(Path.cwd()),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_server())
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        said = json.loads(connection.makefile("rb").read())
    answer: dict[str, Any] = json.loads(said["stdout"] or json.dumps({"msg": said["stderr"], "failed": True}))
    return answer
