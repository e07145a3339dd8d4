"""Every command that an operator has runs where Python lacks the names that a Mac's lacks."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from mypy import api

from tests.transport.sshd_server import Sshd

_ROOT = Path(__file__).resolve().parents[2]
# whose attributes differ between systems
_MODULES = ("os", "socket", "signal", "select", "fcntl", "time", "resource", "mmap", "errno", "termios")


def _lacking(platform: str, program: Path) -> set[str]:
    """The `module.name` that the standard library's type stubs do not have for a platform."""
    told, trouble, _ = api.run(
        [
            *("--platform", platform, "--cache-dir", str(_ROOT / ".mypy_cache" / platform), "--config-file="),
            *("--no-error-summary", str(program)),
        ]
    )
    assert not trouble, trouble
    lines = program.read_text().splitlines()
    return {lines[int(number) - 1] for number in re.findall(r":(\d+): error: .*\[attr-defined\]$", told, re.MULTILINE)}


@pytest.fixture(scope="session")
def linux_names(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    program = tmp_path_factory.mktemp("names") / "names.py"
    names = [f"{each}.{name}" for each in _MODULES for name in dir(importlib.import_module(each))]
    program.write_text("\n".join([f"import {', '.join(_MODULES)}", *names]) + "\n")
    return tuple(sorted(_lacking("darwin", program) - _lacking("linux", program)))


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def mac(linux_names: tuple[str, ...], cli_env: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python with these arguments as a Mac's."""
    folder = tmp_path_factory.mktemp("mac")
    shutil.copy(Path(__file__).with_name("as_mac.py"), folder / "sitecustomize.py")
    (folder / "home").mkdir()
    own = {"PYTHONPATH": f"{folder}:{_ROOT}", "MAC_ROOT": str(_ROOT), "MAC_LACKS": json.dumps(linux_names)}
    own |= {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder / "home")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, *arguments]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=120, check=False, env={**cli_env, **own}, cwd=folder
        )

    return run


# some that had ended commands
_ENDED = {"os.sched_getaffinity", "os.pidfd_open", "socket.TCP_USER_TIMEOUT", "time.CLOCK_BOOTTIME"}


def test_the_names_are_those_that_ended_commands_on_macs(linux_names: tuple[str, ...]) -> None:
    assert set(linux_names) > _ENDED
    assert {"os.fork", "socket.TCP_NODELAY", "fcntl.flock"}.isdisjoint(linux_names)


_IMPORT_ALL = """
import pkgutil, nodectl
names = [each.name for each in pkgutil.walk_packages(nodectl.__path__, "nodectl.", onerror=print)]
of_linux = ("nodectl.payload", "nodectl.lab", "nodectl.workloads")
print(len([__import__(name) for name in names if not name.startswith(of_linux) and not name.endswith("__main__")]))
"""


def test_every_module_is_imported(mac: Run) -> None:
    done = mac("-c", _IMPORT_ALL)
    assert done.returncode == 0 and "sitecustomize" not in done.stderr, done.stderr[-3000:]
    assert int(done.stdout) > 300


# what each prints with a host that answers; 3: a host without GPUs leaves questions open
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("exec -- echo from-the-host", {0}, "from-the-host"),
        ("health --output json", {1, 3}, '"findings"'),
        pytest.param("record recorded", {0, 3}, "", marks=pytest.mark.slow),
        ("doctor", {0, 1, 3}, "1 host"),
        ("probe gemm --output json", {0, 3}, '"measurements"'),
        ("launch --dry-run --engine command --chdir /tmp -- true", {0, 1, 3}, "web1"),
        pytest.param("jobs list", {0, 3}, "", marks=pytest.mark.slow),
        ("--replay h100-8 topology", {0, 3}, "GPU0"),
        pytest.param("--replay h100-8 report -o page.html", {0, 1, 3}, "", marks=pytest.mark.slow),
        pytest.param(
            "provision --check --tags limits --output json -e nodectl_stack=none -e ansible_python_interpreter="
            "/usr/bin/python3",
            {0},
            '"web1"',
            marks=[pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="the login at the host is not root")],
        ),
        ("lab up", {1, 2}, "Linux"),
    ],
)
def test_it_does_its_work(mac: Run, sshd: Sshd, tmp_path: Path, words: str, status: set[int], said: str) -> None:
    inventory = () if words.startswith("--replay") else ("-i", str(sshd.inventory(tmp_path)))
    done = mac("-m", "nodectl", *inventory, *shlex.split(words))
    assert done.returncode in status and "sitecustomize" not in done.stderr, done.stdout[-2000:] + done.stderr[-3000:]
    assert said in done.stdout + done.stderr
