"""The health timer: its refusal, and nodectl's own wheel."""

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from nodectl.common.resources import share_dir
from nodectl.provision.self_wheel import COLLECTION_PARTS, build
from tests.conftest import LabUnderTest
from tests.roles.run_module import run_module
from tests.roles.wheels import locked_line, wheel


def test_what_root_runs_there_has_the_locks_digests(tmp_path: Path) -> None:
    house = tmp_path / "wheels"
    tool = wheel(tmp_path, "nodectl", "1.0", needs=("click>=8",))
    wheel(house, "click", "8.1")
    good = locked_line(house, "click", "8.1")
    version = ".".join(map(str, sys.version_info[:2]))

    def made(digest: str, *locked: str) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "path": tmp_path / "tool",
            "store": tmp_path / "tools",
            "keep": 1,
            "uv": find_uv_bin(),
        }
        wanted |= {"python": sys.executable, "python_min": version, "python_max": version, "index": ""}
        wanted |= {"requirements": ["click>=8"], "locked": locked, "wheelhouse": house}
        wanted |= {"wheel": tool, "wheel_digest": digest, "constraints": [line.partition(" ")[0] for line in locked]}
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in wanted.items()}
        return run_module("plugins/modules/python_venv.py", plain, folder=tmp_path)

    first = made("one", good)
    assert first["changed"] and set(first["found"]) == {"nodectl", "click"}, first
    assert not made("one", good)["changed"]
    other = made("two", good)
    assert other["changed"] and other["environment"] != first["environment"], "another wheel, another environment"
    refused = made("three", good.rpartition(":")[0] + ":" + "0" * 64)
    assert refused["failed"] and "install" in refused["msg"]
    assert (tmp_path / "tool").resolve() == Path(other["environment"])


def test_the_wheel_is_one_and_the_same_for_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = build(tmp_path / "a"), build(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes() and list((tmp_path / "a").iterdir()) == [first]
    names = zipfile.ZipFile(first).namelist()
    for wanted in (
        "nodectl/__main__.py",
        "ansible_collections/nodectl/fleet/playbooks/site.yml",
        "nodectl/payload/recordings/collect.sh",
    ):
        assert wanted in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_it_holds_what_the_wheel_of_the_project_holds() -> None:
    project = tomllib.loads((share_dir() / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert sorted(included) == sorted(("nodectl", *COLLECTION_PARTS))


def test_the_wheel_installs_and_runs(tmp_path: Path) -> None:
    """Into an environment that sees what this one has installed, as there may be no index here."""
    made, place = build(tmp_path), tmp_path / "site"
    argv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place)]
    subprocess.run([*argv, str(made)], check=True, timeout=60)
    script = "import sys; sys.path.insert(0, sys.argv.pop(1)); import nodectl; print(nodectl.__file__); "
    script += "from nodectl.common.resources import share_dir; print(share_dir())"
    done = subprocess.run(
        [sys.executable, "-c", script, str(place)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == [str(place / "nodectl/__init__.py"), str(place / "ansible_collections/nodectl/fleet")]
    assert (place / "bin" / "nodectl").exists()


PLAY = """
- hosts: all
  gather_facts: false
  vars: {nodectl_health_timer: true, health_timer_enabled: true, health_timer_variables: {nodectl_stack: cpu}}
  tasks:
    - ansible.builtin.import_role: {name: nodectl.fleet.health_timer, tasks_from: validate}
    - ansible.builtin.import_role: {name: nodectl.fleet.health_timer}
    - ansible.builtin.import_role: {name: nodectl.fleet.health_timer, tasks_from: verify}
    - ansible.builtin.debug: {msg: "{{ health_timer_verified.findings | map(attribute='actual') }}"}
"""
AWAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: nodectl.fleet.health_timer}
    - ansible.builtin.import_role: {name: nodectl.fleet.health_timer}
"""


@pytest.mark.slow
@pytest.mark.lab
def test_without_systemd_nothing_is_installed_and_what_is_there_can_be_taken_away(
    lab4: LabUnderTest, ansible_play: Callable[..., Any]
) -> None:
    host, places = lab4.hosts[3], "/etc/nodectl/health /opt/nodectl/tool /opt/nodectl/tools"
    done = ansible_play(PLAY, lab4, host)
    assert done.changed == 0 and "not settable on this host: systemd is not process 1" in done.text
    assert lab4.ssh(host, f"ls -d {places}").count("No such file") == 3
    lab4.ssh(host, "mkdir -p /opt/nodectl/tools/one /opt/nodectl/wheels /etc/nodectl/health")
    lab4.ssh(host, "ln -s tools/one /opt/nodectl/tool; touch /opt/nodectl/wheels/nodectl-1-py3-none-any.whl")
    lab4.ssh(host, "touch /etc/nodectl/health/inventory.json")
    assert ansible_play(AWAY, lab4, host).changed == 1, "the second time there is nothing to do"
    left = lab4.ssh(host, "ls -d /opt/nodectl/tools/one /opt/nodectl/tool /opt/nodectl/wheels/* /etc/nodectl/health/*")
    assert "/opt/nodectl/tools/one\n" in f"{left}\n"
    assert left.count("No such file") == 3, "a rollback links to the environment again"
    lab4.ssh(host, "rm -r /opt/nodectl/tools /opt/nodectl/wheels /etc/nodectl/health")
