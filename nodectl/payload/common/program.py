"""The frame of a program: its commands and options, what a failure says, and an end by signals."""

import argparse
import signal
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

from .frames import first_line, say

Work = Callable[[argparse.Namespace], Optional[int]]


def commands(*work: Work) -> Tuple[argparse.ArgumentParser, List[argparse.ArgumentParser]]:
    """Return a parser with a command for each of these functions, named as they are, and the commands' parsers."""
    parser = argparse.ArgumentParser()
    group = parser.add_subparsers(dest="command", required=True)
    parsers = []
    for function in work:
        parsers.append(group.add_parser(function.__name__))
        parsers[-1].set_defaults(run=function)
    return parser, parsers


def add_addresses(ends: Sequence[argparse.ArgumentParser]) -> None:
    """Add the options of both ends of a measurement between two hosts that say where they meet."""
    for end in ends:
        end.add_argument("--address", required=True, help="to bind to, or to connect to")
        end.add_argument("--port", type=int, default=0)
        end.add_argument("--bind", help="the client's own address")


def run(
    parser: argparse.ArgumentParser,
    argv: Optional[Sequence[str]],
    *failures: Type[Exception],
    explain: Callable[[Exception], Dict[str, str]] = (lambda error: {"text": first_line(error)}),
) -> int:
    """Return the command's exit status; 1, after an `error` event, if it fails by one of `failures`.

    RuntimeError, OSError and ValueError are always among them.
    """
    options = parser.parse_args(argv)
    expected: Tuple[Type[Exception], ...] = (RuntimeError, OSError, ValueError, *failures)
    try:
        return options.run(options) or 0
    except expected as error:
        say(event="error", **explain(error))
        return 1


def end_by_signals() -> None:
    """SIGTERM, SIGHUP and SIGINT raise SystemExit(1), so that `finally` is run."""

    def stop(*_: Any) -> None:
        raise SystemExit(1)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
