"""A program read in one piece does what one on standard input does."""

import shlex
import subprocess
import sys

import pytest
from ansible.plugins.loader import shell_loader

from nodectl.provision.pipelining import read_whole, whole

PROGRAM = (
    "# -*- coding: utf-8 -*-\nimport sys\n\ndef told():\n    return __name__, sys.stdin.read(), 'ä'\n\nprint(told())\n"
)


def test_the_program_runs_as_main_and_finds_nothing_left_to_read() -> None:
    argv = shlex.split(whole(sys.executable, f"#!{sys.executable}"))
    assert argv[1] == "-c"
    done = subprocess.run(argv, input=PROGRAM.encode(), capture_output=True, check=True)
    assert done.stdout.decode() == "('__main__', '', 'ä')\n"


def test_an_exception_ends_it_with_its_trace() -> None:
    argv = shlex.split(whole(sys.executable, f"#!{sys.executable}"))
    done = subprocess.run(argv, input=b"raise SystemExit(7)\n", capture_output=True, check=False)
    assert done.returncode == 7
    done = subprocess.run(argv, input=b"\n\n1 / 0\n", capture_output=True, check=False)
    assert done.returncode == 1 and b'File "<stdin>", line 3' in done.stderr and b"ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    "shebang", ["", "#!/bin/sh", "#!/usr/bin/env python3", "#!/usr/bin/python3 -u", "#!powershell"]
)
def test_what_is_no_plain_python_stays(shebang: str) -> None:
    command = f"A=1 {shebang.removeprefix('#!')}"
    assert whole(command, shebang) == command


def test_ansibles_shell_starts_pipelined_modules_so_and_files_as_ever() -> None:
    read_whole()
    read_whole()
    shell = shell_loader.get("sh")
    assert shell.build_module_command("A=1", "#!/usr/bin/python3", "").count("sys.stdin.buffer.read()") == 1
    assert shell.build_module_command("", "#!/usr/bin/python3", "/tmp/x.py") == "/usr/bin/python3 /tmp/x.py"
