"""Regular expressions that are compiled late are right ones, and behave as those that `re` compiles."""

from __future__ import annotations

import importlib
import pkgutil
import re

from nodectl.payload import jobs
from nodectl.payload.common.patterns import _Pattern, lazily


def test_it_is_compiled_by_its_first_use() -> None:
    text = lazily(r"(\d+) apples", re.IGNORECASE)
    assert text._compiled is None  # type: ignore[attr-defined]
    assert text.sub("pears", "7 APPLES") == "pears"
    assert (text.pattern, text.groups, bool(text.flags & re.IGNORECASE)) == (r"(\d+) apples", 1, True)
    data = lazily(rb"x+")
    match = data.search(b"axxb")
    assert match is not None and match.group() == b"xx"


def _patterns(value: object) -> list[_Pattern]:
    if isinstance(value, _Pattern):
        return [value]
    if isinstance(value, dict):
        return [one for each in value.values() for one in _patterns(each)]
    return [one for each in value for one in _patterns(each)] if isinstance(value, tuple | list) else []


def test_all_of_the_programs_can_be_compiled() -> None:
    known = 0
    for found in pkgutil.iter_modules(jobs.__path__):
        values = () if found.ispkg else vars(importlib.import_module(f"{jobs.__name__}.{found.name}")).values()
        for one in [one for value in values for one in _patterns(value)]:
            assert one.pattern
            known += 1
    assert known > 30
