# SPDX-License-Identifier: Apache-2.0
"""A Python environment of a node, read from its own files; nothing here imports or runs a package."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Iterable

# as a program of an interpreter: its version
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def canonical(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def key(version: str) -> tuple[int, ...]:
    """Return `3.11.2` as (3, 11, 2)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def serves(version: str, low: str, high: str) -> bool:
    """Return whether the version lies between two of major and minor, both included."""
    return bool(version) and key(low)[:2] <= key(version)[:2] <= key(high)[:2]


def version_of(run: Callable[[list[str]], tuple[int, str, str]], path: str) -> str:
    """Version of an interpreter; empty if it does not run. `run` is one that a missing program does not end."""
    status, out, _unused = run([path, "-c", VERSION])
    return out.strip() if status == 0 else ""


def site_packages(path: Path) -> Path | None:
    """Return the site-packages folder of an environment."""
    return next(iter(sorted(path.glob("lib/python3*/site-packages"))), None)


def distributions(path: Path) -> dict[str, str]:
    """{canonical name: version} from the dist-info folders of an environment; one that was cut off does not count."""
    versions = {}
    for folder in (site_packages(path) or Path("/nonexistent")).glob("*.dist-info"):
        name, _unused, version = folder.name[: -len(".dist-info")].rpartition("-")
        if (folder / "RECORD").is_file():
            versions[canonical(name)] = version
    return versions


def lacking(requirements: Iterable[str], present: dict[str, str]) -> list[str]:
    """Return requirements that are not met; a pin without a local part (`+cpu`) is met by any, a range by any version.

    One with a marker (`; python_version < "3.12"`) is left to uv.
    """
    missing = []
    for requirement in (text for text in requirements if ";" not in text):
        name, exact, wanted = requirement.partition("==")
        version = present.get(canonical(re.split(r"[\s<>=!~\[]", name)[0]), "")
        if not version or (exact and wanted not in (version, version.partition("+")[0])):
            missing.append(requirement)
    return missing


def venv_python(path: Path) -> str:
    """Version of the interpreter that the environment was made with; empty if it does not run."""
    try:
        fields = dict(re.findall(r"^([\w-]+)\s*=\s*(.+)$", (path / "pyvenv.cfg").read_text(), re.MULTILINE))
    except OSError:
        return ""
    version = fields.get("version_info", fields.get("version", ""))
    return version.strip() if os.access(path / "bin" / "python", os.X_OK) else ""
