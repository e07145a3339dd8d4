"""Options that the bench commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import click

from nodectl.cli.option_types import Read
from nodectl.probes.options import duration

_Command = TypeVar("_Command", bound=Callable[..., object])
_MOST = 1 << 20


class Counts(click.ParamType[tuple[int, ...]]):
    """`1,8,64`, each once, in their order."""

    name = "counts"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        rates = []
        for text in value.split(","):
            if not re.fullmatch(r"[1-9]\d{0,6}", text.strip()) or int(text) > _MOST:
                self.fail(f"{text!r} is no count; write 1,8,64", param, ctx)
            rates.append(int(text))
        return tuple(dict.fromkeys(rates))


class Rates(click.ParamType[tuple[int, ...]]):
    """`100mbit,1gbit` as bits per second."""

    name = "rates"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        from nodectl.errors import UsageError
        from nodectl.lab.spec import parse_rate

        if isinstance(value, tuple):
            return value
        try:
            return tuple(dict.fromkeys(parse_rate(text) for text in value.split(",")))
        except UsageError as error:
            self.fail(f"{error.message}; {error.remedy}", param, ctx)


def measuring(command: _Command) -> _Command:
    """How long, how often, where, and whether beside others' work."""
    for option in reversed(_MEASURING):
        command = option(command)
    return command


_MEASURING = (
    click.option("--repetitions", type=click.IntRange(2, 100), help="The median counts.  Default: 3, training 5."),
    click.option("--port", type=click.IntRange(1, 65535), help="Where hosts listen.  Default: any free port."),
    click.option("--interface", help="The network to measure.  Default: that of the host's address."),
    click.option(
        "--budget",
        type=Read(duration),
        metavar="SECONDS|5m",
        help="For all of it: repetitions and their length are cut down to fit, and what cannot is refused.",
    ),
    click.option(
        "--force", is_flag=True, help="Go on on hosts that another nodectl, a job or a process on a GPU uses."
    ),
)
