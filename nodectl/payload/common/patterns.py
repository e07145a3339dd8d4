"""Regular expressions that are compiled when they are first used, which most are never: a program starts sooner."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Pattern, cast


class _Pattern:
    __slots__ = ("_arguments", "_compiled")

    def __init__(self, text: Any, flags: int) -> None:
        self._arguments = text, flags
        self._compiled: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._compiled is None:
            self._compiled = re.compile(*self._arguments)
        return getattr(self._compiled, name)


def lazily(text: AnyStr, flags: int = 0) -> Pattern[AnyStr]:
    """Return it as `re.compile(text, flags)`; what is wrong with the text shows when it is used."""
    return cast("Pattern[AnyStr]", _Pattern(text, flags))
