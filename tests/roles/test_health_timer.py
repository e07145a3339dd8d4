"""The health timer: its units as systemd itself checks them, its refusal, and nodectl's own wheel."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jinja2
import pytest
from uv import find_uv_bin

from ansible_collections.nodectl.fleet.plugins.module_utils import python_env
from nodectl.common.resources import share_dir
from nodectl.provision.self_wheel import COLLECTION_PARTS, build
from tests.conftest import Cli, LabUnderTest
from tests.roles.run_module import run_module
from tests.roles.wheels import locked_line, wheel

MODULE = "plugins/modules/tool_timer.py"
UNITS = share_dir() / "roles" / "health_timer" / "templates" / "etc" / "systemd" / "system"


@pytest.fixture
def timer(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("health_timer", "tool_timer")


def test_systemd_itself_has_no_word_against_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    tool = tmp_path / "tool" / "bin" / "nodectl"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    variables = {
        "health_timer_tool": str(tmp_path / "tool"),
        "health_timer_inventory": "/etc/nodectl/health/inventory.json",
        "health_timer_folder": "/var/lib/node_exporter/textfile_collector",
        "health_timer_interval": "5min",
        "health_timer_jitter": "1min",
    }
    paths = []
    for template in sorted(UNITS.glob("*.j2")):
        text = jinja2.Template(template.read_text(), undefined=jinja2.StrictUndefined).render(variables)
        paths.append(tmp_path / template.stem)
        paths[-1].write_text(text + "\n")
    assert [path.name for path in paths] == ["nodectl-health.service", "nodectl-health.timer"]
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, paths)], capture_output=True, text=True, check=False, timeout=60
    )
    ours = [line for line in done.stderr.splitlines() if "nodectl" in line]
    assert ours == [], done.stderr
    broken = tmp_path / "nodectl-broken.service"
    broken.write_text("[Service]\nType=sometimes\nExecStart=/nowhere\n")
    shown = subprocess.run(["systemd-analyze", "verify", broken], capture_output=True, text=True, check=False)
    assert "nodectl-broken" in shown.stderr, "systemd-analyze would have told"


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"/usr/bin/python3": "3.8"}, ("", "/usr/bin/python3 is 3.8")),
        ({"/usr/bin/python3": "3.10", "/usr/bin/python3.12": "3.12"}, ("/usr/bin/python3.12", "")),
        ({"/usr/bin/python3": "3.11"}, ("/usr/bin/python3", "")),
        ({"/usr/bin/python3-config": "3.12"}, ("", "none")),
        ({}, ("", "none")),
    ],
)
def test_an_interpreter_that_is_new_enough(
    timer: ModuleType, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], found: tuple[str, str]
) -> None:
    def there(pattern: str) -> list[str]:
        return list(versions) if pattern.startswith("/usr/bin") else []

    monkeypatch.setattr(timer.glob, "glob", there)

    def run(argv: list[str]) -> tuple[int, str, str]:
        return 0, versions[argv[0]] + "\n", ""

    assert timer.interpreter(run) == found
    reason = timer.refusal(run)
    assert reason == "" if found[0] else "needs Python 3.11 or newer" in reason and found[1] in reason


def test_taken_away_the_tool_leaves_the_environment_that_a_rollback_links_to(tmp_path: Path) -> None:
    store, link, wheels = tmp_path / "tools", tmp_path / "tool", tmp_path / "lib"
    for age, name in enumerate(["newest", "older", "oldest"]):
        (store / name).mkdir(parents=True)
        os.utime(store / name, (1e9 - age, 1e9 - age))
    (store / ".partial-cut").mkdir()
    link.symlink_to(store / "newest")
    wheels.mkdir()
    for name in ("nodectl-1-py3-none-any.whl", "nodectl-2-py3-none-any.whl", "nic_hw.py"):
        (wheels / name).touch()
    arguments = {
        "state": "absent",
        "store": str(store),
        "link": str(link),
        "wheel_folder": str(wheels),
        "folder": str(tmp_path),
        "files": {str(tmp_path / "none.timer"): ""},
    }
    for check in (True, False):
        assert run_module(MODULE, arguments, folder=tmp_path, check=check)["changed"] is True
        assert link.is_symlink() == check
    assert [path.name for path in store.iterdir()] == ["newest"]
    assert [path.name for path in wheels.iterdir()] == ["nic_hw.py"]
    assert run_module(MODULE, arguments, folder=tmp_path)["changed"] is False


def test_a_node_without_uv_is_told_how_to_get_it(timer: ModuleType, tmp_path: Path) -> None:
    class FailedError(Exception):
        pass

    def fail_json(msg: str) -> None:
        raise FailedError(msg)

    module = SimpleNamespace(params={"uv": str(tmp_path / "uv")}, fail_json=fail_json)
    with pytest.raises(FailedError, match=r"there is no uv at .*/uv; `nodectl provision --tags python` brings it"):
        timer.make(module, None, "/usr/bin/python3", tmp_path / "aside")


def test_what_root_runs_there_has_the_locks_digests_and_nothing_more(timer: ModuleType, tmp_path: Path) -> None:
    """A rogue sibling's lock: one more package, or another file under a good name."""
    house = tmp_path / "wheels"
    own = wheel(tmp_path, "nodectl", "1.0", needs=("click>=8",))
    wheel(house, "click", "8.1")
    wheel(house, "evil", "1.0")
    good, evil = locked_line(house, "click", "8.1"), locked_line(house, "evil", "1.0")

    class FailedError(Exception):
        pass

    def fail_json(msg: str) -> None:
        raise FailedError(msg)

    def run_command(argv: list[str], environ_update: dict[str, str] | None = None) -> tuple[int, str, str]:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env={**os.environ, **(environ_update or {})}
        )
        return done.returncode, done.stdout, done.stderr

    def make(folder: Path, locked: list[str]) -> set[str]:
        params: dict[str, Any] = {
            "uv": find_uv_bin(),
            "wheel": str(own),
            "wheel_digest": "1",
            "wheelhouse": str(house),
            "index": "",
        }
        params |= {"requirements": ["click>=8"], "locked": locked}
        module = SimpleNamespace(params=params, fail_json=fail_json, run_command=run_command)
        timer.make(module, run_command, sys.executable, folder)
        return set(python_env.distributions(folder))

    assert make(tmp_path / "one", [good, evil]) == {"nodectl", "click"}
    with pytest.raises(FailedError, match="nodectl's own packages"):
        make(tmp_path / "two", [good.rpartition(":")[0] + ":" + "0" * 64])


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


@pytest.mark.lab
def test_without_systemd_nothing_is_installed_and_it_is_said(
    nodectl: Cli, lab4: LabUnderTest, ansible_play: Callable[..., Any]
) -> None:
    done = ansible_play(PLAY, lab4, lab4.hosts[3])
    assert done.changed == 0 and "not settable on this host: systemd is not process 1" in done.text
    left = lab4.ssh(lab4.hosts[3], "ls -d /etc/nodectl/health /opt/nodectl/tool /opt/nodectl/tools")
    assert left.count("No such file") == 3
