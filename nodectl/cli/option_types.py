"""Types of options that click does not have: times, and any text that a function reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click


class Seconds(click.FloatRange):
    """A range of numbers, and nothing else: NaN lies in every range of click's."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no time; write seconds, as in 0.5", param, ctx)
        return number


class Read(click.ParamType[Any]):
    """What `read` makes of a text; its ValueError says what is wrong with it."""

    def __init__(self, read: Callable[[str], object], name: str = "text") -> None:
        self.read = read
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
