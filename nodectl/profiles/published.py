"""The age of nodectl's copies of published facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodectl.common import bounded_yaml
from nodectl.common.resources import data_dir, profiles_dir, share_dir
from nodectl.profiles.schema import Published

_COMMENTED = re.compile(rb"^# ((?:source|read_on|valid_until): .+)$", re.MULTILINE)


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
