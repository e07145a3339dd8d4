"""How text reaches the operator, control characters of hosts made visible, and the one question before hosts change."""

from __future__ import annotations

import json
import select
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.common.printable import printable
from nodectl.errors import NodectlError, UsageError
from nodectl.model.facts import Unread

if TYPE_CHECKING:
    from nodectl.model.host import Host


def safe(text: str) -> str:
    r"""`text` with control characters spelled out (`\x1b`), so that no host can drive the terminal."""
    return printable(text.replace("\r\n", "\n"))


# of a line that a person reads; files and JSON have all of it
_LINE_CHARS = 4096
# narrower than that no table can be read, nor broken into lines
_LEAST_COLUMNS = 20
_LONG_CHARS = 1 << 20


def terminal_width() -> int:
    """Columns of the terminal; COLUMNS goes before it, and 80 if there is none."""
    return max(_LEAST_COLUMNS, shutil.get_terminal_size((80, 24)).columns)


def result(text: str) -> None:
    """Print a result, to stdout."""
    click.echo(_shown(text))


def note(text: str) -> None:
    """Print anything that is not the result, to stderr."""
    click.echo(_shown(text), err=True)


def _shown(text: str) -> str:
    return "\n".join(
        line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}… ({len(line) - _LINE_CHARS} more characters)"
        for line in safe(text).split("\n")
    )


def as_json(name: str, document: Mapping[str, object]) -> str:
    """One JSON document with its schema (`nodectl.<name>/1`), a long one without line breaks: a tenth of the work."""
    whole = {"schema": f"nodectl.{name}/1", **document}
    try:
        text = json.dumps(whole, default=_plain, allow_nan=False)
    except ValueError:  # a host may print any number; JSON has none that is infinite, or no number
        whole = json.loads(json.dumps(whole, default=_plain), parse_constant=lambda _: None)
        text = json.dumps(whole)
    return text if len(text) > _LONG_CHARS else json.dumps(whole, indent=2, default=_plain)


def _plain(value: object) -> object:
    """Return what JSON has for it; a subject of facts without values says `absent` or `unknown` with the reason."""
    if isinstance(value, Unread):
        return {value.kind: value.reason}
    return {field.name: getattr(value, field.name) for field in fields(value)} if is_dataclass(value) else str(value)


def emit_json(name: str, document: Mapping[str, object]) -> None:
    """Print the result as one JSON document."""
    click.echo(as_json(name, document))


@contextmanager
def writing(path: Path, option: str = "", remedy: str = "name a file in a folder that is there") -> Iterator[None]:
    """Turn a file that cannot be written into a UsageError that names it, and the option that it came from."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}".strip(), remedy) from error


def put(text: str, write: Path | None) -> None:
    """Print a result, or write it into that file in one step: a reader sees the old one or the new one."""
    if write is None:
        result(text)
        return
    from nodectl.common.files import replace_file

    # everybody may read it, as node_exporter must
    with writing(write, "--write"):
        replace_file(write, safe(text) + "\n", mode=0o644)


class DeclinedError(NodectlError):
    """The operator answered no: nothing was changed."""


def ask(hosts: Sequence[Host], question: str, shown: Sequence[str], *, yes: bool) -> None:
    """Ask the operator, and raise DeclinedError for a no; `yes`, or a lab without a terminal, needs no answer."""
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
    """Read a line that already waits on standard input (`echo n | nodectl …`); empty if none does."""
    try:
        if sys.stdin is not None and select.select([sys.stdin], [], [], 0)[0]:
            return sys.stdin.readline().strip()
    except (OSError, ValueError):  # closed, or not a file that can be waited for
        return ""
    return ""
