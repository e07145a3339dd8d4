"""Modules that declare something by being there: probes, checks, facts, kinds of faults."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from types import ModuleType

from nodectl.common.spelling import nearest
from nodectl.errors import DeclarationError, NodectlError

_REMEDY = "correct that file, or take it away"
_UNEXPECTED = re.compile(r"(?P<called>\w+)(\.__init__)?\(\) got an unexpected keyword argument '(?P<name>\w+)'.*")
# file:line of a module that was being imported when something went wrong
Place = tuple[str, int]


def modules_below(package: str, declares: str = "") -> Iterator[ModuleType]:
    """Yield the modules of a package and of its folders, in the order of their names.

    With `declares` only those that assign this name at their left margin: the others are not imported.
    DeclarationError with file and line where one cannot be imported.
    """
    for name in names_below(package):
        if not declares or re.search(rf"^{declares}\b", _source(name), re.MULTILINE):
            yield load(name)


def names_below(package: str) -> list[str]:
    """Return the names of these modules."""
    modules = pkgutil.walk_packages(load(package).__path__, f"{package}.", onerror=load)
    return [module.name for module in modules]


def load(module: str) -> ModuleType:
    """Import the module; DeclarationError with file and line where it cannot be, for whatever reason."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        file, line = _place(error) or (module, 0)
        where = f"{file}, line {line}" if line else file
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise DeclarationError(f"{where}: {type(error).__name__}: {reason}{_hint(error)}", _REMEDY) from error


def ended(main: Callable[[], None]) -> None:
    """Run a script of the checkout; what nodectl refuses ends it with the reason, and without a traceback."""
    try:
        main()
    except NodectlError as error:
        sys.exit(f"{error.message}\n  try: {error.remedy}" if error.remedy else error.message)


def _hint(error: Exception) -> str:
    """Return which field is meant, where a declaration gives one that its class has not."""
    match = _UNEXPECTED.fullmatch(str(error))
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    if match is None or not frames or not callable(declared := frames[-1].f_globals.get(match["called"])):
        return ""
    near = nearest(match["name"], inspect.signature(declared).parameters)
    return f"; did you mean {near!r}?" if near else ""


def _place(error: Exception) -> Place | None:
    """Return the place in the module imported last: the declaration is there, not in the class that refused it."""
    if isinstance(error, SyntaxError) and error.filename:
        return _short(error.filename), error.lineno or 0
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>"
    ]
    return (_short(places[-1][0]), places[-1][1]) if places else None


def _short(file: str) -> str:
    """Return the path below the folder that holds nodectl, where it is below it."""
    home = Path(__file__).resolve().parents[2]
    path = Path(file)
    return str(path.relative_to(home)) if path.is_relative_to(home) else file


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text(encoding="utf-8", errors="replace") if spec and spec.origin else ""
