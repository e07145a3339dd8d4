"""Times as options take them."""

from __future__ import annotations

import math
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
