"""How long what nodes run is supported by others, and how old nodectl's own copies of published facts are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.common import bounded_yaml
from nodectl.common.resources import data_dir, profiles_dir, share_dir
from nodectl.profiles.load import check_document, read_document
from nodectl.profiles.matrix import matrix
from nodectl.profiles.nccl import version_key
from nodectl.profiles.schema import Os, Published, Strict

# what ends sooner is told
SOON = timedelta(days=90)
_COMMENTED = re.compile(rb"^# ((?:source|read_on|valid_until): .+)$", re.MULTILINE)


class _Driver(Strict):
    branch: int
    kind: str
    ends: date


class _System(Strict):
    system: Os
    ends: date


class _Python(Strict):
    python: str
    ends: date


class _Support(Published):
    drivers: tuple[_Driver, ...]
    systems: tuple[_System, ...]
    pythons: tuple[_Python, ...]


@cache
def _support() -> _Support:
    path = data_dir() / "support.yml"
    return check_document(_Support, read_document(path), str(path))


def driver_support(version: str) -> tuple[str, date] | None:
    """Return what a driver's branch is, and its last day; None for a branch of which nothing is published."""
    branch = version.partition(".")[0]
    return next(((f"{row.kind} branch", row.ends) for row in _support().drivers if str(row.branch) == branch), None)


def system_end(system: str) -> date | None:
    """Return the last day of a distribution, as `ubuntu-22.04`; None where it is not known."""
    return next((row.ends for row in _support().systems if row.system == system), None)


def python_end(version: str) -> date | None:
    """Return the last day on which python.org mends a Python, as `3.10.12`; None where it is not known."""
    minor = ".".join(version.split(".")[:2])
    return next((row.ends for row in _support().pythons if row.python == minor), None)


def last_torch(cuda: str) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the last PyTorch with builds for a CUDA, the newest of all, and its CUDAs; None if it has that CUDA."""
    rows = [row for row in matrix().torch if row.cuda and "build" not in row.unsure]
    builds = [(version_key(row.torch), row.torch, row.cuda or "") for row in rows]
    newest = max(builds)[1]
    has = tuple(sorted(each for _, torch, each in builds if torch == newest))
    with_it = [(key, torch) for key, torch, each in builds if each == ".".join(cuda.split(".")[:2])]
    return (max(with_it)[1], newest, has) if with_it and max(with_it)[1] != newest else None


def data_files() -> list[Path]:
    """Return the tables that nodectl ships: of others' facts, and its own."""
    tables = (share_dir() / "plugins").rglob("*.tsv")
    return sorted([*data_dir().rglob("*.yml"), *profiles_dir().glob("*.yml"), *profiles_dir().rglob("_*.yml"), *tables])


def published_files() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each table that says when it was read, with its head (source, read_on, valid_until)."""
    for path in data_files():
        data = path.read_bytes()
        # a table of tabs has its head in comments
        document = bounded_yaml.load(data if path.suffix == ".yml" else b"\n".join(_COMMENTED.findall(data)))
        if isinstance(document, dict) and "read_on" in document:
            yield path, {name: document[name] for name in Published.model_fields}
