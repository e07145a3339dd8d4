"""Modules that roles bring with them, loaded by their path as Ansible does."""

import importlib
import importlib.util
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest
from tests.playbooks import ansible_playbook


@pytest.fixture(scope="session")
def role_module() -> Callable[[str, str], ModuleType]:
    def load(role: str, name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, share_dir() / "plugins" / "modules" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def utils() -> Callable[[str], ModuleType]:
    """`utils("undo.store")`: a helper of the collection's modules, under the name that it has on a node."""
    return lambda name: importlib.import_module(f"ansible_collections.nodectl.fleet.plugins.module_utils.{name}")


@dataclass(frozen=True, slots=True)
class Play:
    """What an ansible-playbook printed, and how many tasks changed something."""

    text: str
    changed: int

    def changed_in(self, name: str) -> list[str]:
        """The lines of changes in the play of this name, where several ran."""
        _, header, rest = self.text.partition(f"PLAY [{name}]")
        assert header, self.text
        return re.findall(r"^changed: .*", re.split(r"^PLAY ", rest, flags=re.MULTILINE)[0], re.MULTILINE)

    def run_of(self, role: str, name: str) -> list[str]:
        """The role's tasks that were not skipped in the play of this name, without those of its validation."""
        play = re.split(r"^PLAY ", self.text.partition(f"PLAY [{name}]")[2], flags=re.MULTILINE)[0]
        tasks = re.findall(rf"^TASK \[nodectl\.fleet\.{role} : (.*)\] \*+\n(?:ok|changed): ", play, re.MULTILINE)
        validation = {
            task["name"]
            for task in yaml.safe_load((share_dir() / "roles" / role / "tasks" / "validate.yml").read_text())
        }
        return [task for task in tasks if task not in validation]


@pytest.fixture
def ansible_play(tmp_path: Path, cli_env: dict[str, str]) -> Callable[..., Play]:
    """`ansible_play(text, lab, limit, check=True, **variables)` runs a play of a test's own with nodectl's roles."""

    def play(text: str, lab: LabUnderTest, limit: str, check: bool = True, **variables: object) -> Play:
        path = tmp_path / "play.yml"
        path.write_text(text)
        words = ("-i", lab.inventory, "-l", limit, "-e", json.dumps(variables), str(path))
        done = ansible_playbook(*words, env={**os.environ, **cli_env, "ANSIBLE_PIPELINING": "True"})
        assert not check or done.returncode == 0, done.stdout + done.stderr
        changed = re.search(r"changed=(\d+)", done.stdout)
        return Play(done.stdout + done.stderr, int(changed.group(1)) if changed else -1)

    return play
