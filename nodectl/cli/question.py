"""The one question before hosts change: what is shown, and what counts as an answer."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nodectl.cli.terminal import note, safe
from nodectl.errors import NodectlError, UsageError

if TYPE_CHECKING:
    from nodectl.model.host import Host


class DeclinedError(NodectlError):
    """The operator answered no: nothing was changed."""


def ask(hosts: Sequence[Host], question: str, shown: Sequence[str], *, yes: bool) -> None:
    """Return where it may go on: `--yes`, an answer, or a lab without a terminal, which nobody is asked about."""
    if yes:
        return
    for line in shown:
        note(line)
    if sys.stdin is not None and sys.stdin.isatty():
        if not click.confirm(safe(question), err=True):
            raise DeclinedError("nothing was changed")
        return
    answer = _waiting_answer()
    if answer.lower() in ("y", "yes"):
        note(f"{question} {answer}")
    elif answer:
        raise DeclinedError(f"{question} {answer}: nothing was changed")
    elif all(host.is_true("nodectl_lab") for host in hosts):
        note(f"{question} these are a lab's hosts: going on without an answer")
    else:
        raise UsageError(
            f"{question} there is no terminal to ask on: nothing was changed",
            "add --yes, or look first with --check --diff",
        )


def _waiting_answer() -> str:
    """Read a line that already waits on standard input (`echo n | nodectl …`); empty where none does."""
    try:
        if sys.stdin is not None and select.select([sys.stdin], [], [], 0)[0]:
            return sys.stdin.readline().strip()
    except (OSError, ValueError):  # closed, or not a file that can be waited for
        return ""
    return ""
