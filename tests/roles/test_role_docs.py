"""Every role has the skeleton and says what it takes; test_examples.py asks ansible-doc."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir

_SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "role_readmes.py"
_LOADER = importlib.util.spec_from_file_location("role_readmes_under_test", _SCRIPT)
assert _LOADER is not None and _LOADER.loader is not None
readmes = importlib.util.module_from_spec(_LOADER)
_LOADER.loader.exec_module(readmes)

_ROLES = share_dir() / "roles"
_NAMES = sorted(path.name for path in _ROLES.iterdir() if path.is_dir())
_SKELETON = (
    "README.md",
    "defaults/main.yml",
    "meta/argument_specs.yml",
    "meta/main.yml",
    "tasks/configure.yml",
    "tasks/main.yml",
    "tasks/validate.yml",
    "tasks/verify.yml",
)


def _specs(role: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((_ROLES / role / "meta" / "argument_specs.yml").read_text())
    return loaded["argument_specs"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("role", _NAMES)
def test_role_has_the_skeleton(role: str) -> None:
    assert [name for name in _SKELETON if not (_ROLES / role / name).is_file()] == []


@pytest.mark.parametrize("role", _NAMES)
def test_variables_carry_the_roles_name_and_defaults_are_its_arguments(role: str) -> None:
    known = {name for spec in _specs(role).values() for name in spec.get("options", {})}
    defaults = yaml.safe_load((_ROLES / role / "defaults" / "main.yml").read_text()) or {}
    assert [name for name in known | defaults.keys() if not name.removeprefix("_").startswith(f"{role}_")] == []
    # <role>_touches is for the record of changes, and _<role>_ begins what the role looks up; no document offers them
    assert {name for name in defaults.keys() - known if name[0] != "_"} == {f"{role}_touches"}
    assert not [name for name in known if name[0] == "_"]
    required = {name for name, option in _specs(role)["main"].get("options", {}).items() if option.get("required")}
    assert required & defaults.keys() == set()


@pytest.mark.parametrize("role", _NAMES)
def test_the_specs_show_each_default_that_is_no_template(role: str) -> None:
    defaults = yaml.safe_load((_ROLES / role / "defaults" / "main.yml").read_text())
    options = {name: option for spec in _specs(role).values() for name, option in spec.get("options", {}).items()}
    plain = {name: value for name, value in defaults.items() if name in options and "{{" not in json.dumps(value)}
    assert {name: options[name].get("default") for name in plain} == plain
    assert {name for name, option in options.items() if "default" in option} == set(plain)


@pytest.mark.parametrize("role", _NAMES)
def test_galaxy_is_told_what_the_role_is_for(role: str) -> None:
    info = yaml.safe_load((_ROLES / role / "meta" / "main.yml").read_text())["galaxy_info"]
    assert info["description"] == _specs(role)["main"]["short_description"]
    assert {each["name"] for each in info["platforms"]} == {"Ubuntu", "Debian", "EL"}
    own = [path for path in (_ROLES / role).rglob("*.yml") if "role_path" in path.read_text()]
    assert own == [], "a role's files are its own"


def test_each_plug_in_says_its_licence() -> None:
    for path in (share_dir() / "plugins").rglob("*.py"):
        text = path.read_text()
        licence = "GPL-3.0-or-later" if re.search(r"^ *(from|import) ansible[ .]", text, re.MULTILINE) else "Apache-2.0"
        assert not text or f"# SPDX-License-Identifier: {licence}\n" in text, path
