"""YAML that others wrote, bounded in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_MOST_BYTES = 1 << 20


class FastLoader(_Loader):
    """Safe, and in C where PyYAML was built so: a tenth of the time."""


def read_bytes(path: Path) -> bytes:
    """Read the file's content; ValueError if it is larger than any such file."""
    with path.open("rb") as stream:
        return bounded(stream.read(_MOST_BYTES + 1))


def bounded(content: bytes) -> bytes:
    """Return the content; ValueError if it is larger than any such file."""
    if len(content) > _MOST_BYTES:
        raise ValueError(f"larger than {_MOST_BYTES >> 10} KiB")
    return content


def load(content: bytes, loader: Any = FastLoader, complaining: Any = FastLoader) -> Any:
    """Read the document by a safe `loader`; yaml.YAMLError of `complaining`, or ValueError if it is too large."""
    try:
        return yaml.load(bounded(content), Loader=loader)  # noqa: S506  # callers give safe loaders
    except yaml.YAMLError:
        return yaml.load(content, Loader=complaining)  # noqa: S506
