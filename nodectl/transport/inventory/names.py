"""The names in an inventory's static files, for completion: they are read as text, and no program or plug-in runs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from configparser import Error, RawConfigParser
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.transport.inventory.here import NAME, inventories_beside, inventory_of_here, is_example, lists_here

_CONFIG_FILES = ("ansible.cfg", "~/.ansible.cfg", "/etc/ansible/ansible.cfg")
_DEFAULT = "/etc/ansible/hosts"
# of a folder, what is no inventory
_PASSED_OVER = re.compile(
    r"\..*|(?:host|group)_vars|vars_plugins|nodectl\.toml|profiles|locks"
    r"|.*(?:~|\.(?:pyc|pyo|swp|bak|rpm|md|txt|rst|orig|cfg|retry))"
)
_YAML = (".yml", ".yaml", ".json")
_ALWAYS = dict.fromkeys(("all", "ungrouped"))
_MOST_BYTES = 16 << 20
_MOST_NAMES = 100_000
_RANGE = re.compile(r"\[(?P<first>\d+|[a-zA-Z]):(?P<last>\d+|[a-zA-Z])(?::(?P<step>[1-9]\d*))?\]")
# others are no names of hosts, and nothing that a shell should be given
_NAME = re.compile(r"[\w.@%+-]+")


@dataclass(slots=True)
class Names:
    """`sources` are the inventories as Ansible is given them."""

    sources: tuple[str, ...]
    hosts: dict[str, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)


def names_of(sources: Sequence[str]) -> Names:
    """Return the names of hosts and groups in `sources`, by default in what ansible.cfg or ANSIBLE_INVENTORY name."""
    named = list(sources) or _configured()
    if not named:
        return Names((inventory_of_here(),), {NAME: None}, dict(_ALWAYS))
    places = [source if "," in source else str(Path(source).expanduser().absolute()) for source in named]
    names = Names(tuple(path for place in places for path in (place, *_beside(place))))
    for place in places:
        if "," in place:
            names.hosts |= dict.fromkeys(name.strip() for name in place.split(",") if name.strip())
        else:
            _read(Path(place), names)
    names.groups |= _ALWAYS if names.hosts else {}
    return names


def _beside(place: str) -> list[str]:
    return inventories_beside(place) if "," in place else []


def _configured() -> list[str]:
    """Return the inventories that no option names; none if this machine alone is meant."""
    if named := os.environ.get("ANSIBLE_INVENTORY"):
        return [] if lists_here(named) else _paths(named, Path())
    given = os.environ.get("ANSIBLE_CONFIG")
    for name in [given] if given else _CONFIG_FILES:
        path = Path(name).expanduser()
        path = path / "ansible.cfg" if path.is_dir() else path
        if path.is_file():
            parser = RawConfigParser(strict=False, inline_comment_prefixes=(";",))
            try:
                parser.read(path, encoding="utf-8")
            except (Error, UnicodeDecodeError):
                return []
            named = parser.get("defaults", "inventory", fallback="")
            paths = _paths(named, path.parent) if named else []
            return [] if all(map(is_example, paths)) else paths
    return [_DEFAULT] if Path(_DEFAULT).exists() else []


def _paths(named: str, folder: Path) -> list[str]:
    """Return the paths of a setting, which are relative to its file."""
    places = (os.path.expandvars(place.strip()) for place in named.split(","))
    return [os.path.abspath(folder / Path(place).expanduser()) for place in places]  # noqa: PTH100 - as Ansible has it


def _read(path: Path, names: Names) -> None:
    """Add the names of a file, or of all files of a folder; none of a program."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        for below in sorted(path.iterdir()):
            if not _PASSED_OVER.fullmatch(below.name):
                _read(below, names)
    elif stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111 and status.st_size <= _MOST_BYTES:
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix in _YAML:
            _add_yaml(text, names)
        else:
            _add_ini(text, names)


def _add_yaml(text: str, names: Names) -> None:
    import yaml

    try:
        # BaseLoader makes nothing of a tag
        document = yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506
    except yaml.YAMLError:
        return
    if isinstance(document, dict) and "plugin" not in document:
        _add_groups(document, names)


def _add_groups(groups: dict[str, Any], names: Names) -> None:
    for group, body in groups.items():
        names.groups |= dict.fromkeys(_expanded(group))
        if not isinstance(body, dict):
            continue
        for host in body.get("hosts") or ():
            names.hosts |= dict.fromkeys(_expanded(host))
        if isinstance(children := body.get("children"), dict):
            _add_groups(children, names)


def _add_ini(text: str, names: Names) -> None:
    section = "hosts"
    for line in map(str.strip, text.splitlines()):
        if heading := re.match(r"\[([^\]:]+)(?::(\w+))?\]", line):
            names.groups |= dict.fromkeys(_expanded(heading[1].strip()))
            section = heading[2] or "hosts"
        elif line and line[0] not in "#;" and section in ("hosts", "children"):
            known = names.hosts if section == "hosts" else names.groups
            known |= dict.fromkeys(_expanded(re.sub(r"^([^:\[\]]+):\d+$", r"\1", line.split()[0])))


def _expanded(pattern: object) -> Iterator[str]:
    """Yield the names of a range such as `gpu[01:16]`, and any other name as it is."""
    text = str(pattern)
    found = _RANGE.search(text)
    if found is None:
        yield from [text] if _NAME.fullmatch(text) else []
        return
    first, last, step = found["first"], found["last"], int(found["step"] or 1)
    if first.isdigit() != last.isdigit():
        return
    if first.isdigit():
        width = len(first) if first[0] == "0" else 0
        parts = [
            f"{number:0{width}}" for number in range(int(first), min(int(last), int(first) + _MOST_NAMES) + 1, step)
        ]
    else:
        parts = [chr(number) for number in range(ord(first), ord(last) + 1, step)]
    for part in parts:
        yield from _expanded(f"{text[: found.start()]}{part}{text[found.end() :]}")
