"""An inventory as a value and as files, and its choices with their reasons."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from nodectl.common.bounded_json import plain_value
from nodectl.common.files import replace_file
from nodectl.common.resources import data_dir
from nodectl.errors import UsageError
from nodectl.profiles import KINDS

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
        """Return what was chosen for a variable; None if nothing was."""
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
    return {
        name: value
        for name, value in first.items()
        if all(name in variables and variables[name] == value for variables in hosts)
    }


def group_name(profile: str, taken: Sequence[str] = ()) -> str:
    """Return a name that Ansible takes for a group, and that is none of those `taken`."""
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
    text: str = yaml.safe_dump(plain_value(value), default_flow_style=True, width=1 << 20, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(text: str, indent: int = 0) -> str:
    wide = _COMMENT_WIDTH - indent
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, wide, break_long_words=False) or [""]]
    return "\n".join(f"{' ' * indent}# {line}".rstrip() for line in lines)


# The variables that make a host, each with its reason: general words here, those of the case from the caller.

_HARDWARE = "What the hosts are made of, and what they must reach when they are measured: `nodectl profile show {}`."
_STACK = "What is installed: PyTorch, CUDA and the driver that they need. `nodectl profile list` shows the others."
_TUNING = (
    "Kernel, NCCL, NIC and GPU settings. stock changes nothing: measure first, then let `nodectl tune` propose and"
    " prove a tuning."
)
_DRIVER = "Whether nodectl may install and replace the NVIDIA driver (docs/provision.md)."
_REBOOT = (
    "A new driver may need a reboot. With true, or `nodectl provision --allow-reboot`, hosts reboot one at a time."
)


def choices(profiles: Mapping[str, str], reasons: Mapping[str, str], driver: str) -> tuple[Choice, ...]:
    """Return the three profiles, and if there is a driver what is done with it.

    `reasons` are those of the case, by hardware, stack, tuning and driver; `driver` is keep, manage or empty.
    """
    hardware = _HARDWARE.format(profiles["hardware"])
    general = {"hardware": hardware, "stack": _STACK, "tuning": _TUNING, "driver": _DRIVER}
    why = {kind: "\n".join(filter(None, [text, reasons.get(kind)])) for kind, text in general.items()}
    chosen = [Choice(f"nodectl_{kind}", profiles[kind], why[kind]) for kind in KINDS]
    if driver:
        chosen.append(Choice("nodectl_driver", driver, why["driver"]))
        chosen.append(Choice("nodectl_allow_reboot", True, _REBOOT, open=True))
    return tuple(chosen)


def write_all(folder: Path, files: Mapping[Path, str], *, force: bool) -> list[Path]:
    """Write `files` below the folder and return their paths; UsageError if one exists already or cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "name a folder")
    places = {folder / path: text for path, text in files.items()}
    there = [str(place) for place in places if place.exists() or place.is_symlink()]
    if there and not force:
        raise UsageError(f"{', '.join(there)} is there already", "name another folder, or write over it with --force")
    try:
        for place, text in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, text, mode=0o644)
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder}: {error.strerror or error}", "name a folder that you may write"
        ) from error
    return list(places)
