"""ansible-doc shows each role and plugin of the collection with examples, and those hold: names, arguments, filters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from jinja2 import Environment, StrictUndefined

from nodectl.common.resources import share_dir
from nodectl.profiles.host import of_variables
from plugins.filter import nccl, nvidia
from tests.profiles.combinations import LOOK

PLUGINS = share_dir() / "plugins"
FILTERS: Mapping[str, Callable[..., Any]] = {**nccl.FilterModule().filters(), **nvidia.FilterModule().filters()}
MODULES = sorted(path.stem for path in (PLUGINS / "modules").glob("*.py"))
LOOKUPS = sorted(path.stem for path in (PLUGINS / "lookup").glob("*.py"))
ROLES = sorted(path.parent.parent.name for path in share_dir().glob("roles/*/meta/argument_specs.yml"))
OTHERS = {"lookup": LOOKUPS, "filter": sorted(FILTERS)}
_SPEC = ("type", "required", "default", "choices", "elements", "no_log", "aliases")


@cache
def documents(kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    """What `ansible-doc --json` says of these plugins, or roles, by their short names."""
    argv = [str(Path(sys.executable).with_name("ansible-doc")), "--type", kind, "--json"]
    argv += [f"nodectl.fleet.{name}" for name in names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {name.rpartition(".")[2]: document for name, document in json.loads(done.stdout).items()}


def spec_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """An argument spec as documented: `suboptions` of modules are `options` of roles."""
    spec = {}
    for name, option in options.items():
        spec[name] = {key: option[key] for key in _SPEC if option.get(key) is not None}
        if inner := option.get("suboptions") or option.get("options"):
            spec[name]["options"] = spec_of(inner)
    return spec


def refusals(spec: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """What Ansible says of arguments; a template stands for whatever its option takes."""
    samples = {"dict": {}, "list": [], "int": 1, "float": 1.0, "bool": True}
    plain = {
        name: samples.get(spec.get(name, {}).get("type", "str"), "x") if "{{" in str(value) else value
        for name, value in given.items()
    }
    return list(ArgumentSpecValidator(spec).validate(plain).error_messages)


def test_every_filter_has_a_document_of_its_own() -> None:
    assert {path.stem for path in (PLUGINS / "filter").glob("*.yml")} == FILTERS.keys()


@pytest.mark.parametrize("name", MODULES)
def test_a_modules_example_is_what_it_takes(name: str) -> None:
    document = documents("module", tuple(MODULES))[name]
    spec = spec_of(document["doc"]["options"])
    tasks = [task for task in yaml.safe_load(document["examples"]) if f"nodectl.fleet.{name}" in task]
    assert tasks and document["return"], name
    for task in tasks:
        assert refusals(spec, task[f"nodectl.fleet.{name}"] or {}) == []


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in OTHERS.items() for name in names])
def test_other_plugins_are_shown_by_their_own_names(kind: str, name: str) -> None:
    document = documents(kind, tuple(OTHERS[kind]))[name]
    assert document["doc"]["name"] == name and document["doc"]["short_description"]
    assert f"nodectl.fleet.{name}" in document["examples"] and document["return"]


@pytest.fixture(scope="module")
def variables() -> dict[str, Any]:
    """A host's `node` and `fleet`, as modules and lookups of the collection give them."""
    wanted = {"nodectl_hardware": "dgx-a100", "nodectl_stack": "cu128", "nodectl_tuning": "stock"}
    node = {"kernel": "5.15.0-100-generic", "gpu_users": [{"pid": 42, "name": "python3"}], **LOOK}
    node["driver"] = {"packages": [], **node["driver"]}
    node["boot"] = {"kernel": node["kernel"], "headers": False, "free_mib": 500, "needed_mib": 100, "held": []}
    return {"node": node, "fleet": of_variables(wanted).as_variables()}


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_a_filters_example_gives_what_it_says(name: str, variables: Mapping[str, Any]) -> None:
    document = documents("filter", tuple(OTHERS["filter"]))[name]
    environment = Environment(undefined=StrictUndefined)  # noqa: S701 # no page is made of it
    environment.filters |= {f"nodectl.fleet.{each}": function for each, function in FILTERS.items()}
    (example,) = yaml.safe_load(document["examples"]).values()
    expression = re.fullmatch(r"\{\{ (.+) \}\}", example)
    assert expression is not None
    value = environment.compile_expression(expression[1], undefined_to_none=False)(**variables)
    kinds = {"str": str, "list": list, "dict": dict}
    assert isinstance(value, kinds[document["return"]["_value"]["type"]])
    # its arguments by position are those of the function
    positional = [each.strip() for each in document["doc"].get("positional", "").split(",") if each.strip()]
    code = FILTERS[name].__code__
    assert positional == list(code.co_varnames[1 : code.co_argcount])
    assert document["doc"]["options"].keys() == {"_input", *positional}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_shown_with_its_arguments_and_an_example(role: str) -> None:
    entries = documents("role", tuple(ROLES))[role]["entry_points"]
    assert {"main", "validate", "verify"} <= entries.keys()
    for entry in entries.values():
        assert entry["short_description"]
        assert all(option.get("description") for option in entry["options"].values())
    main = entries["main"]
    plays = yaml.safe_load(main["examples"])
    given = list(_roles_of(plays, f"nodectl.fleet.{role}"))
    assert given, role
    for arguments in given:
        assert refusals(spec_of(main["options"]), arguments) == []
        required = {name for name, option in main["options"].items() if option.get("required")}
        assert required <= arguments.keys()


def _roles_of(plays: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The variables of the role, as a play has it among `roles` or imports it."""
    found = []
    for play in plays:
        for role in play.get("roles", []):
            if role["role"] == name:
                found.append({key: value for key, value in role.items() if key != "role"})
        for task in play.get("tasks", []):
            if task.get("ansible.builtin.import_role", {}).get("name") == name:
                found.append(task["vars"])
    return found
