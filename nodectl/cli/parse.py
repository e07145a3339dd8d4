"""`nodectl parse`: Read a tool's saved output as JSON."""

from __future__ import annotations

import codecs
import sys
from contextlib import nullcontext
from pathlib import Path

import click

from nodectl.cli.options import OneOf
from nodectl.cli.terminal import emit_json, note
from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, parser_of, tools

_MOST_BYTES = 16 * MIB
_HEAD_BYTES = 1 << 16


@click.command(epilog=f"Tools: {', '.join(tools())}")
@click.argument("tool", type=OneOf(tools()), metavar="TOOL")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str), metavar="FILE|-")
def parse(tool: str, file: str) -> None:
    """Read a tool's saved output and print what it says as JSON.

    What the tool does not give is null; what it refuses is null too, and stands in `unavailable` as printed.
    Ends with 1 and the reason if the text cannot be read; a text that ends within a line is told on standard error.
    """
    with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as opened:
        text = _text(opened.read(_MOST_BYTES + 1))
    document = as_document(parser_of(tool)(text))
    if text and not text.endswith("\n"):
        note(f"the text ends within a line; save what {tool} prints once more if it was cut there")
    emit_json(f"parse.{tool}", document)


def _text(data: bytes) -> str:
    """UTF-8, or what the file's own mark says: PowerShell saves as UTF-16."""
    if len(data) > _MOST_BYTES:
        remedy = "parse its end: `tail -c 16M FILE | nodectl parse TOOL -`"
        raise ParseError(f"it is larger than {_MOST_BYTES // MIB} MiB", remedy)
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in data[:_HEAD_BYTES] and not is_utf16:
        raise ParseError("it is no text: it holds zero bytes", "save what the tool prints, unpacked")
    return data.decode("utf-16" if is_utf16 else "utf-8", errors="replace")
