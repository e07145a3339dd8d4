"""Message sizes on the command line: single ones, series of powers, and up to the memory's limit."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from nodectl.common.units import parse_size

_SERIES = re.compile(r"(?P<least>[^.*]{1,30})\.\.(?P<most>[^.*]{1,30})(?:\*(?P<factor>[1-9]\d?))?")
_FACTOR = 2
_MOST = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """In bytes, ascending; `grow` is the factor by which they go on up to the memory's limit, 0 where they do not."""

    each: tuple[int, ...]
    grow: int = 0


class SweepSizes(click.ParamType[Sizes]):
    """`1KiB,64MiB`, `1KiB..1GiB` (powers of two), `1KiB..1GiB*4` (of four), `1KiB..max` (the memory's limit)."""

    name = "sizes"

    def convert(self, value: str | Sizes, param: click.Parameter | None, ctx: click.Context | None) -> Sizes:
        if isinstance(value, Sizes):
            return value
        found: set[int] = set()
        grow = 0
        for text in value.split(","):
            series = _SERIES.fullmatch(text.strip())
            if series is None:
                found.add(self._one(text, param, ctx))
                continue
            factor = int(series["factor"] or _FACTOR)
            least = self._one(series["least"], param, ctx)
            if factor < _FACTOR:
                self.fail(f"{text!r}: sizes grow by 2 at least", param, ctx)
            if series["most"].strip().lower() == "max":
                grow = factor
                found.add(least)
            else:
                found |= self._series(least, self._one(series["most"], param, ctx), factor, param, ctx)
        if grow and max(found) != min(found):
            self.fail(f"{value!r}: a series up to max stands alone", param, ctx)
        return Sizes(tuple(sorted(found)), grow)

    def _series(
        self, least: int, most: int, factor: int, param: click.Parameter | None, ctx: click.Context | None
    ) -> set[int]:
        if most < least:
            self.fail(f"{least}..{most} begins with the larger size", param, ctx)
        sizes = {least}
        while max(sizes) * factor <= most and len(sizes) < _MOST:
            sizes.add(max(sizes) * factor)
        # the end that was named is measured, too
        return sizes | {most}

    def _one(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = parse_size(text)
        if not size:
            self.fail(f"{text.strip()!r} is no size; write 1KiB, 64MiB, 1KiB..max or a number of bytes", param, ctx)
        return size
