"""The versions of all packages are chosen once: a host made months later, with newer wheels around, is as the first."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from nodectl.common.resources import share_dir
from tests.roles.wheels import wheel

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
        machine: x86_64
        requirements: [torch==9.1]
        uv: {uv}
        index: https://example.invalid/simple
        wheelhouse: "{wheels}"
        look: {look}
        controller_uv: "{borrowed}"
      register: lock
    - ansible.builtin.debug: {{msg: "{{{{ inventory_hostname }}}} has {{{{ lock.pins | join(' ') }}}}"}}
"""

pytestmark = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"no {PYTHON} here")


def play(tmp_path: Path, host: str, *options: str, look: bool = False, uv: str = "", python: str = PYTHON) -> str:
    """The output of a play on this host alone; `uv` is the host's, in whose place the controller's is taken."""
    places = {"folder": tmp_path / "locks", "wheels": tmp_path / "wheels", "python": python}
    borrowed = find_uv_bin() if uv else ""
    text = _PLAY.format(**places, uv=uv or find_uv_bin(), look=str(look).lower(), borrowed=borrowed)
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
    assert "early has sympy==1.0 torch==9.1" in play(tmp_path, "early")
    wheel(wheels, "sympy", "2.0")
    assert "late has sympy==1.0 torch==9.1" in play(tmp_path, "late")
    (lock,) = (tmp_path / "locks").glob("torch-9.1-py3.11-x86_64-*.txt")
    assert lock.read_text(encoding="utf-8").startswith("# resolved once on early, for all hosts of this kind")
    lock.unlink()
    assert "later has sympy==2.0 torch==9.1" in play(tmp_path, "later")


def test_a_check_makes_none_and_a_failure_says_why(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "torch", "9.1", needs=("sympy",))
    assert "early has " in play(tmp_path, "early", "--check")
    assert "uv could not resolve torch==9.1" in play(tmp_path, "early")
    assert not list((tmp_path / "locks").glob("*.txt"))


def test_a_look_says_what_cannot_be_had_and_leaves_nothing(tmp_path: Path) -> None:
    """Also on a host that has neither uv nor the interpreter yet."""
    wheels = tmp_path / "wheels"
    first: dict[str, Any] = {"uv": "/nonexistent/uv", "python": "/nonexistent/python3.11"}
    wheel(wheels, "torch", "9.1", needs=("sympy",))
    for options in ({}, first):
        said = play(tmp_path, "early", look=True, **options)
        assert "uv could not resolve torch==9.1" in said and ": nothing was changed" in said, said
        assert f"wheels come from {wheels} alone (nodectl_wheelhouse): put what is missing there" in said
    wheel(wheels, "sympy", "1.0")
    for options in ({}, first):
        assert "early has sympy==1.0 torch==9.1" in play(tmp_path, "early", "--check", look=True, **options)
    assert not (tmp_path / "locks").exists()
    assert not list((tmp_path / "ansible").rglob("torch-9.1-*.txt")), "nor where the run keeps its files"
