"""The versions of all packages are chosen once: a host made months later, with newer wheels around, is as the first."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from ansible_collections.nodectl.fleet.plugins.module_utils import python_lock
from nodectl.common.resources import share_dir
from tests.roles.wheels import locked_line, simple_index, wheel

PYTHON = "/usr/bin/python3"
_PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  tasks:
    - nodectl.fleet.python_lock:
        folder: "{folder}"
        python: {python}
        python_version: "3.11.2"
        machine: "{machine}"
        requirements: [torch==9.1]
        uv: {uv}
        index: "{index}"
        wheelhouse: "{wheels}"
        look: {look}
        controller_uv: "{controller_uv}"
      register: lock
    - ansible.builtin.debug: {{msg: "{{{{ inventory_hostname }}}} has {{{{ lock.pins | join(' ') }}}}"}}
"""

pytestmark = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"no {PYTHON} here")


def play(tmp_path: Path, host: str, *options: str, look: bool = False, **changes: str) -> str:
    """The output of a play on this host alone; `uv` is the host's."""
    asked = {
        "folder": tmp_path / "locks",
        "wheels": tmp_path / "wheels",
        "python": PYTHON,
        "machine": "x86_64",
        "index": "https://example.invalid/simple",
        "uv": find_uv_bin(),
        "controller_uv": "",
    }
    text = _PLAY.format(**{**asked, **changes}, look=str(look).lower())
    (tmp_path / "play.yml").write_text(text, encoding="utf-8")
    program = Path(sys.executable).with_name("ansible-playbook")
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_HOME": str(tmp_path / "ansible")}
    argv = [
        str(program),
        "-i",
        f"{host},",
        "-e",
        f"ansible_python_interpreter={PYTHON}",
        *options,
        str(tmp_path / "play.yml"),
    ]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **settings}, cwd=tmp_path
    )
    return done.stdout + done.stderr


def test_a_host_of_another_month_gets_the_first_ones_versions(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "torch", "9.1", needs=("sympy",))
    wheel(wheels, "sympy", "1.0")
    first = " ".join(play(tmp_path, "early").split())
    assert "early has sympy==1.0 torch==9.1" in first
    assert "[WARNING]: the versions and digests of 2 packages in" in first
    assert f"are those that early chose, for all hosts of this kind: the wheels lie in its own {wheels}" in first
    wheel(wheels, "sympy", "2.0")
    assert "late has sympy==1.0 torch==9.1" in play(tmp_path, "late")
    (lock,) = (tmp_path / "locks").glob("torch-9.1-py3.11-x86_64-*.txt")
    assert lock.read_text(encoding="utf-8").startswith("# resolved once on early, for all hosts of this kind")


def test_a_check_makes_none_and_a_failure_says_why(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "torch", "9.1", needs=("sympy",))
    assert "early has " in play(tmp_path, "early", "--check")
    assert "uv could not resolve torch==9.1" in play(tmp_path, "early")
    assert not list((tmp_path / "locks").glob("*.txt"))


@pytest.mark.slow
def test_a_look_says_what_cannot_be_had_and_leaves_nothing(tmp_path: Path) -> None:
    """Also on a host that has neither uv nor the interpreter yet."""
    wheels = tmp_path / "wheels"
    first: dict[str, Any] = {
        "uv": "/nonexistent/uv",
        "python": "/nonexistent/python3.11",
        "controller_uv": find_uv_bin(),
    }
    wheel(wheels, "torch", "9.1", needs=("sympy",))
    said = play(tmp_path, "early", look=True, **first)
    assert "uv could not resolve torch==9.1" in said and ": nothing was changed" in said, said
    assert f"wheels come from {wheels} alone (nodectl_wheelhouse): put what is missing there" in said
    wheel(wheels, "sympy", "1.0")
    assert "early has sympy==1.0 torch==9.1" in play(tmp_path, "early", "--check", look=True, **first)
    assert not (tmp_path / "locks").exists()
    assert not list((tmp_path / "ansible").rglob("torch-9.1-*.txt")), "nor where the run keeps its files"


def lock_of(tmp_path: Path) -> str:
    """The one lock, without its head; '' where there is none."""
    (text,) = [path.read_text(encoding="utf-8") for path in (tmp_path / "locks").glob("*.txt")] or [""]
    return text.partition("\n")[2]


def test_the_controller_resolves_and_no_host_is_asked(tmp_path: Path) -> None:
    index = simple_index(tmp_path / "index", ("torch", "9.1"))
    given: dict[str, Any] = {"index": index, "wheels": "", "uv": "/nonexistent/uv", "controller_uv": find_uv_bin()}
    said = play(tmp_path, "early", **given)
    assert "early has torch==9.1" in said and "WARNING]: the versions" not in said
    assert lock_of(tmp_path) == locked_line(tmp_path / "index" / "torch", "torch", "9.1") + "\n"


GOOD = "torch==9.1 --hash=sha256:" + "a" * 64


@pytest.mark.parametrize(
    "line",
    [
        "filelock @ http://127.0.0.1:9/filelock.tar.gz",
        "--extra-index-url http://127.0.0.1:9/simple",
        "filelock==1.0",
        "filelock==1.0 --hash=md5:00",
        f"{GOOD} --index-url=http://127.0.0.1:9",
        f"{GOOD} ; --index-url=http://127.0.0.1:9",
        f"{GOOD}\n--index-url=http://127.0.0.1:9",
        f"{GOOD} \\",
        "-e /tmp/filelock",
        "file:///tmp/filelock.whl",
        "../filelock==1.0 --hash=sha256:" + "a" * 64,
    ],
)
def test_a_lock_has_no_other_form(line: str) -> None:
    with pytest.raises(python_lock.LockError, match="is no name==version with sha256 digests"):
        python_lock.judge([GOOD, line], ["torch==9.1"])
    assert python_lock.pins(python_lock.judge([GOOD], ["torch==9.1"])) == ["torch==9.1"]


def test_what_a_rogue_host_answers_never_reaches_a_lock(tmp_path: Path) -> None:
    """The host's uv is the rogue's, and what it prints is what the host answers."""
    wheel(tmp_path / "wheels", "torch", "9.1")
    good, rogue = locked_line(tmp_path / "wheels", "torch", "9.1"), tmp_path / "uv"
    rogue.write_text(f"#!/bin/sh\nprintf '%s\\n' '{good}' 'filelock @ http://127.0.0.1:9/filelock.tar.gz'\n")
    rogue.chmod(0o755)
    said = play(tmp_path, "node01", uv=str(rogue))
    assert "node01 resolved to what is no lock" in said and "nothing was kept or installed" in said, said
    assert lock_of(tmp_path) == ""


def test_a_lock_has_what_is_wanted() -> None:
    with pytest.raises(python_lock.LockError, match=r"torch==9\.2 is wanted, and it has 9\.1"):
        python_lock.judge([GOOD], ["torch==9.2"])
    with pytest.raises(python_lock.LockError, match=r"click>=8 is wanted, and it has none"):
        python_lock.judge([GOOD], ["click>=8"])
    pin = GOOD.replace("torch==9.1", "sympy==1.0")
    with pytest.raises(python_lock.LockError, match=r"sympy==1\.1 is wanted, and it has 1\.0"):
        python_lock.judge([GOOD, pin], ["torch==9.1"], ["sympy==1.1", "numpy==2.0", "click>=8"])
    assert python_lock.judge([GOOD, pin], ["torch==9.1"], ["sympy==1.0.0"])
    more = [GOOD.replace("torch", f"extra{number}") for number in range(60)]
    with pytest.raises(python_lock.LockError, match="it names 61 packages; 60 are allowed for 1 wanted"):
        python_lock.judge([GOOD, *more], ["torch==9.1"])


def test_a_host_cannot_name_a_file_of_the_controller(tmp_path: Path) -> None:
    said = play(tmp_path, "node01", machine="../../../../authorized")
    assert "node01 says machine" in said and "nothing was locked or installed" in said, said
