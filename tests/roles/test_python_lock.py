"""The controller's uv chooses versions once: a host made months later, with newer wheels around, is as the first."""

import os
from pathlib import Path

import pytest
from uv import find_uv_bin

from ansible_collections.nodectl.fleet.plugins.module_utils import python_lock
from nodectl.common.resources import share_dir
from tests.playbooks import ansible_playbook
from tests.roles.wheels import locked_line, simple_index

_PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  tasks:
    - nodectl.fleet.python_lock:
        folder: "{folder}"
        python_version: "3.11.2"
        machine: "{machine}"
        requirements: [torch==9.1]
        index: "{index}"
        wheelhouse: "{wheels}"
        controller_uv: {uv}
      register: lock
    - ansible.builtin.debug: {{msg: "{{{{ inventory_hostname }}}} has {{{{ lock.pins | join(' ') or 'no lock' }}}}"}}
"""


def play(tmp_path: Path, host: str, *options: str, machine: str = "x86_64", wheels: str = "") -> str:
    """The output of a play on this host alone."""
    places = {"folder": str(tmp_path / "locks"), "index": (tmp_path / "index").as_uri(), "uv": find_uv_bin()}
    (tmp_path / "play.yml").write_text(_PLAY.format(**places, machine=machine, wheels=wheels), encoding="utf-8")
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_HOME": str(tmp_path / "ansible")}
    settings["UV_DEFAULT_INDEX"] = places["index"]
    done = ansible_playbook("-i", f"{host},", *options, "play.yml", env={**os.environ, **settings}, cwd=tmp_path)
    return " ".join((done.stdout + done.stderr).split())


def test_a_host_of_another_month_gets_the_first_ones_versions(tmp_path: Path) -> None:
    index, lock = tmp_path / "index", tmp_path / "locks"
    assert "uv could not resolve torch==9.1" in play(tmp_path, "early")
    simple_index(index, ("torch", "9.1", "sympy"))
    refused = play(tmp_path, "early", "--check")
    assert "uv could not resolve torch==9.1" in refused and "nothing was changed; wheels come from file:" in refused
    simple_index(index, ("sympy", "1.0"))
    checked = play(tmp_path, "early", "--check")
    assert "early has sympy==1.0 torch==9.1" in checked, checked
    assert not list(lock.glob("*.txt")) and not list((tmp_path / "ansible").rglob("torch-9.1-*.txt"))
    assert "early has sympy==1.0 torch==9.1" in play(tmp_path, "early")
    simple_index(index, ("sympy", "2.0"))
    assert "late has sympy==1.0 torch==9.1" in play(tmp_path, "late")
    (made,) = lock.glob("torch-9.1-py3.11-x86_64-*.txt")
    lines = [locked_line(index / name, name, version) for name, version in (("sympy", "1.0"), ("torch", "9.1"))]
    assert made.read_text(encoding="utf-8").splitlines()[1:] == lines
    made.write_text("torch==9.1 --index-url=http://127.0.0.1:9\n")
    assert "delete it to have versions chosen again" in play(tmp_path, "late")


def test_wheels_in_a_folder_of_the_host_have_no_lock(tmp_path: Path) -> None:
    assert "node01 has no lock" in play(tmp_path, "node01", wheels="/srv/wheels")


def test_a_host_cannot_name_a_file_of_the_controller(tmp_path: Path) -> None:
    said = play(tmp_path, "node01", machine="../../../../authorized")
    assert "node01 says machine" in said and "nothing was locked or installed" in said, said


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
        f"{GOOD} \\\n--index-url=http://127.0.0.1:9",
        "-e /tmp/filelock",
        "file:///tmp/filelock.whl",
        "../filelock==1.0 --hash=sha256:" + "a" * 64,
    ],
)
def test_a_lock_has_no_other_form(line: str) -> None:
    with pytest.raises(python_lock.LockError, match="is no name==version with sha256 digests"):
        python_lock.read(f"{GOOD}\n{line}\n" if line[-1] != "\\" else f"{GOOD}\n{line}")
    assert python_lock.read(f"# a comment\n{GOOD} \\\n    --hash=sha256:{'b' * 64}\n").keys() == {"torch"}
