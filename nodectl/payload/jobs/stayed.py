"""Whether a file or module that a rank misses is one of the project's that did not travel to the hosts."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ..common.patterns import lazily

_CLASSES = ("data_missing", "import_error")
# a path in quotes, or a word with a slash in it
_PATH = lazily(r"'([^'\n]{1,500})'|\"([^\"\n]{1,500})\"|([\w.~-]*/[^\s'\",;:()]{1,500})")
_MODULE = lazily(r"No module named '?([A-Za-z_][\w.]*)")


def explain(failure: Dict[str, Any], folder: str) -> None:
    """Add to the evidence of a failure by which rule that stayed behind; `folder` is the job's."""
    if failure.get("class") not in _CLASSES:
        return
    plan = _plan(folder)
    rules = [(str(place), str(rule)) for place, rule in plan.get("stayed") or ()]
    code = os.path.join(folder, "code")
    for place in _places(failure, plan, code) if rules else ():
        found = None if os.path.lexists(os.path.join(code, place)) else _rule_of(place, rules)
        if found is not None:
            failure["evidence"] = [
                *failure["evidence"],
                f"{place} did not travel with the code: {found[1]} leaves out {found[0]}",
            ]
            return


def _plan(folder: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def _places(failure: Dict[str, Any], plan: Dict[str, Any], code: str) -> Iterator[str]:
    """The places in the project that may be meant, the likeliest first."""
    workdir = str(plan.get("workdir") or "")
    beside = os.path.join(workdir, os.path.dirname(str(plan.get("script") or "")))
    for text in (str(failure["message"]), *failure["evidence"]):
        for match in _MODULE.finditer(text):
            name = match[1].replace(".", "/")
            for base in (beside, "", "src", workdir):
                yield os.path.normpath(os.path.join(base, f"{name}.py"))
                yield os.path.normpath(os.path.join(base, name))
        for match in _PATH.finditer(text):
            yield from _inside(match[1] or match[2] or match[3], (workdir, "", beside), code)


def _inside(path: str, bases: Sequence[str], code: str) -> Iterator[str]:
    if os.path.isabs(path):
        for root in (code, os.path.realpath(code)):
            if path.startswith(root + "/"):
                yield os.path.normpath(path[len(root) + 1 :])
        return
    for base in bases:
        place = os.path.normpath(os.path.join(base, path))
        if place.partition("/")[0] not in ("..", "."):
            yield place


def _rule_of(place: str, rules: List[Tuple[str, str]]) -> Optional[Tuple[str, str]]:
    """Return what was left out in which it lies, that it is, or of which it is the folder."""
    for left, rule in rules:
        if place == left.rstrip("/") or (left.endswith("/") and place.startswith(left)):
            return left, rule
    return next((each for each in rules if each[0].startswith(f"{place}/")), None)
