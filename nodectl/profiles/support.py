"""How long what nodes run is supported by others, and how old nodectl's own copies of published facts are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.common import bounded_yaml
from nodectl.common.resources import data_dir, profiles_dir
from nodectl.profiles.load import check_document, read_document
from nodectl.profiles.schema import Os, Published, Strict

# what ends sooner is told
SOON = timedelta(days=90)


class _Driver(Strict):
    branch: int
    kind: str
    ends: date


class _System(Strict):
    system: Os
    ends: date


class _Support(Published):
    drivers: tuple[_Driver, ...]
    systems: tuple[_System, ...]


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


def published_files() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each file of nodectl that says when it was read, with its head (source, read_on, valid_until)."""
    for path in sorted([*data_dir().rglob("*.yml"), *profiles_dir().glob("*.yml")]):
        document = bounded_yaml.load(path.read_bytes())
        if isinstance(document, dict) and "read_on" in document:
            yield path, {name: document[name] for name in Published.model_fields}
