"""Modules that roles bring with them, loaded by their path as Ansible does."""

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import ansible.module_utils
import pytest

from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest

# the helpers that Ansible sends along with a module
ansible.module_utils.__path__.append(str(share_dir() / "playbooks" / "module_utils"))


@pytest.fixture(scope="session")
def role_module() -> Callable[[str, str], ModuleType]:
    def load(role: str, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, share_dir() / "roles" / role / "library" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def utils() -> Callable[[str], ModuleType]:
    """`utils("node_store")`: a module of the playbooks, as Ansible's own package holds it on a node."""
    return lambda name: importlib.import_module(f"ansible.module_utils.{name}")


@dataclass(frozen=True, slots=True)
class Play:
    """What an ansible-playbook printed, and how many tasks changed something."""

    text: str
    changed: int


@pytest.fixture
def ansible_play(tmp_path: Path, cli_env: dict[str, str]) -> Callable[..., Play]:
    """`ansible_play(text, lab, limit, check=True, **variables)` runs a play of a test's own with nodectl's roles."""

    def play(text: str, lab: LabUnderTest, limit: str, check: bool = True, **variables: object) -> Play:
        path = tmp_path / "play.yml"
        path.write_text(text)
        argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", lab.inventory, "-l", limit]
        argv += ["-e", json.dumps(variables), str(path)]
        share = share_dir()
        paths = {
            "ANSIBLE_ROLES_PATH": str(share / "roles"),
            "ANSIBLE_LIBRARY": str(share / "playbooks" / "library"),
            "ANSIBLE_MODULE_UTILS": str(share / "playbooks" / "module_utils"),
            "ANSIBLE_FILTER_PLUGINS": str(share / "playbooks" / "filter_plugins"),
            "ANSIBLE_PIPELINING": "True",
        }
        env = {**os.environ, **cli_env, **paths}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=env)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        changed = re.search(r"changed=(\d+)", done.stdout)
        return Play(done.stdout + done.stderr, int(changed.group(1)) if changed else -1)

    return play
