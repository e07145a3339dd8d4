"""A pipelined module is read by the host's Python in one piece.

Python reads a program that comes on its standard input one byte at a time, so that the program may read what follows
it: some 200,000 system calls for each of Ansible's modules, a quarter of what a task costs a host. A program of one
line that reads the rest whole and runs it does the same without.
"""

from __future__ import annotations

import re
import shlex
from functools import wraps
from typing import Any

from ansible.plugins.shell import ShellBase

_READ_WHOLE = 'import sys;exec(compile(sys.stdin.buffer.read(),"<stdin>","exec"))'
_PYTHON = re.compile(r"(?:\S*/)?python[0-9.]*")


def read_whole() -> None:
    """From now on the shells of this process start pipelined Python modules so; idempotent."""
    build = ShellBase.build_module_command
    if getattr(build, "reads_whole", False):
        return

    @wraps(build)
    def command(self: Any, env_string: str, shebang: str | None, cmd: str, arg_path: str | None = None) -> str:
        built: str = build(self, env_string, shebang, cmd, arg_path)
        return built if cmd.strip() or arg_path else whole(built, shebang or "")

    command.reads_whole = True  # type: ignore[attr-defined]
    ShellBase.build_module_command = command


def whole(command: str, shebang: str) -> str:
    """`command` as it reads its program in one piece; as it is where it is not a plain Python that ends it."""
    interpreter = shebang.removeprefix("#!").strip()
    if not _PYTHON.fullmatch(interpreter) or not command.endswith(interpreter):
        return command
    return f"{command} -c {shlex.quote(_READ_WHOLE)}"
