"""The parsers in families, by folder, true outputs to start from, and what a parser may do with any text."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, families, parser_of

_TOOLS = Path(__file__).resolve().parent.parent / "fixtures" / "tools"

FAMILIES = {family: tuple(tools) for family, tools in families().items()}

# a text of 64 KiB is read in some 20 ms; what needs this long grows faster than its text
SLOWEST_S = 2.0
_LONGEST_MESSAGE = 2_000


class TooSlowError(Exception):
    """A parser needed more than its time for one text."""


@cache
def seeds(tool: str) -> tuple[str, ...]:
    """Outputs of the tool, written or recorded; never empty."""
    return tuple(path.read_text() for path in sorted((_TOOLS / tool).glob("*.txt")))


def check(tool: str, text: str) -> float:
    """Reads the text; returns the seconds it took, raises whatever is no ParseError.

    A result must be a document that any JSON reader takes, and an error must be short and name the tool's trouble.
    """
    began = time.process_time()
    with _limited(SLOWEST_S):
        try:
            document = as_document(parser_of(tool)(text))
        except ParseError as error:
            assert error.message.strip(), f"{tool}: an error without words"
            assert len(error.message) <= _LONGEST_MESSAGE, f"{tool}: an error of {len(error.message)} characters"
        else:
            json.dumps(document, allow_nan=False)
    return time.process_time() - began


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends Python code, also within a regular expression, that used more processor time."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
