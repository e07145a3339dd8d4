"""Modules that declare something by being there: probes, checks, facts, kinds of faults."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from nodectl.errors import NodectlError


def modules_below(package: str, declares: str = "") -> Iterator[ModuleType]:
    """Yield the modules of a package in order; with `declares` only those that assign this name."""
    for name in names_below(package):
        if not declares or re.search(rf"^{declares}\b", _source(name), re.MULTILINE):
            yield importlib.import_module(name)


def names_below(package: str) -> list[str]:
    """Return the names of these modules."""
    modules = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    return [module.name for module in modules]


def ended(main: Callable[[], None]) -> None:
    """Run a script of the checkout; what nodectl refuses ends it with the reason, and without a traceback."""
    try:
        main()
    except NodectlError as error:
        sys.exit(f"{error.message}\n  try: {error.remedy}" if error.remedy else error.message)


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text(encoding="utf-8", errors="replace") if spec and spec.origin else ""
