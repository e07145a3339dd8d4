"""What the commands of `nodectl bench` share: counts, the options of all that measure, and tables as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import click

from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import conclude
from nodectl.cli.options import Read, force_option, gathered, output_option
from nodectl.cli.terminal import result
from nodectl.model.finding import Finding
from nodectl.probes.options import duration as as_seconds

if TYPE_CHECKING:
    from nodectl.probes.base import ProbeOptions

_Own = TypeVar("_Own", bound="ProbeOptions")
_MOST_COUNT = 1 << 20
_CSV = "csv"
# a table: the names of its columns, then its lines
Lines = Sequence[Sequence[object]]


def read_counts(text: str) -> tuple[int, ...]:
    """`1,8,64`, each once, in their order; ValueError where one is no count."""
    counts = text.split(",")
    for count in counts:
        if not re.fullmatch(r"[1-9]\d{0,6}", count.strip()) or int(count) > _MOST_COUNT:
            raise ValueError(f"{count!r} is no count; write 1,8,64")
    return tuple(dict.fromkeys(map(int, counts)))


csv_option = output_option("table", "json", _CSV)
budget_option = click.option(
    "--budget",
    type=Read(as_seconds),
    metavar="SECONDS|5m",
    help="Time for the whole measurement; repetitions are shortened to fit, and what cannot fit is refused.",
)


@dataclass(frozen=True, slots=True)
class Measuring:
    """The options of all that measure between hosts."""

    repetitions: int | None
    port: int | None
    interface: str | None
    budget: float | None
    force: bool

    def over(self, app: App, options: _Own) -> _Own:
        """A probe's options with these in them; the budget counts from now."""
        ends_at = self.budget and monotonic() + self.budget
        return replace(
            options,
            repetitions=self.repetitions,
            port=self.port,
            interface=self.interface,
            forks=app.forks,
            ends_at=ends_at,
        )


measuring = gathered(
    Measuring,
    click.option(
        "--repetitions",
        type=click.IntRange(2, 100),
        help="How often each value is measured; the median counts.  Default: 3, training 5.",
    ),
    click.option(
        "--port", type=click.IntRange(1, 65535), help="Port on which the hosts listen.  Default: any free port."
    ),
    click.option("--interface", help="The network to measure.  Default: that of the host's address."),
    budget_option,
    force_option,
    include_cordoned_option,
    csv_option,
)


def show(app: App, name: str, document: Mapping[str, object], text: str, lines: Lines) -> None:
    """The result as it was asked for: `lines` are its table for other programs."""
    if app.output == _CSV:
        result(as_csv(lines).rstrip("\n"))
    else:
        app.show(name, document, text)


def finish(
    app: App, name: str, document: Mapping[str, object], text: str, lines: Lines, findings: Sequence[Finding]
) -> None:
    """The same, then the findings on stderr; the process ends with their status where that is not 0."""
    if app.output == _CSV:
        result(as_csv(lines).rstrip("\n"))
    conclude(app, name, document, "" if app.output == _CSV else text, findings)


def as_csv(lines: Lines) -> str:
    """A table by RFC 4180, but for line ends; nothing stands for what was not measured."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["" if cell is None else cell for cell in line] for line in lines])
    return text.getvalue()
