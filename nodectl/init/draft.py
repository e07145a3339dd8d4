"""An inventory as a value, and its files as text: hosts.yml, and group_vars with the reason of every choice."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from nodectl.common.plain_values import plain_value
from nodectl.common.resources import data_dir

HOSTS = "hosts.yml"
TEMPLATES = data_dir() / "inventories"
_COMMENT_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable with its value and why; `open`: left for the operator, written as a comment."""

    name: str
    value: object
    why: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts that are to be the same: their own variables by name, and the choices for all of them."""

    name: str
    about: str
    hosts: Mapping[str, Mapping[str, object]]
    choices: tuple[Choice, ...]

    def value(self, name: str) -> object:
        """Return what was chosen for a variable; None where nothing was."""
        return next((choice.value for choice in self.choices if choice.name == name and not choice.open), None)


@dataclass(frozen=True, slots=True)
class Draft:
    """The whole inventory; `shared` are variables of all hosts."""

    about: str
    groups: tuple[Group, ...]
    shared: Mapping[str, object]

    def files(self) -> dict[Path, str]:
        """Text by path below the inventory's folder."""
        texts = {Path(HOSTS): _rendered("hosts.yml.j2", draft=self)}
        for group in self.groups:
            texts[Path("group_vars") / f"{group.name}.yml"] = _rendered("group_vars.yml.j2", group=group)
        return texts


def shared_variables(hosts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return those that all hosts have, with the same value."""
    first = hosts[0] if hosts else {}
    return {name: value for name, value in first.items() if all(name in own and own[name] == value for own in hosts)}


def group_name(profile: str, taken: Sequence[str] = ()) -> str:
    """A name that Ansible takes for a group, and that is none of those `taken`."""
    name = re.sub(r"\W", "_", profile, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z_]", name) and name not in ("all", "ungrouped") else f"hosts_{name}"
    while name in taken:
        name = f"{name}_hosts"
    return name


def _rendered(template: str, **values: object) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # YAML, whose values are written by its own writer
    )
    environment.filters |= {"yaml": _yaml, "comment": _comment}
    return environment.get_template(template).render(**values)


def _yaml(value: object) -> str:
    """The value on one line, quoted where YAML wants it."""
    text: str = yaml.safe_dump(plain_value(value), default_flow_style=True, width=1 << 20, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(text: str, indent: int = 0) -> str:
    """Return it as lines of comment; a line break in `text` stays one."""
    wide = _COMMENT_WIDTH - indent
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, wide, break_long_words=False) or [""]]
    return "\n".join(f"{' ' * indent}# {line}".rstrip() for line in lines)
