"""`nodectl parse`: Read a tool's saved output as JSON."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path

import click

from nodectl.cli.options import OneOf
from nodectl.cli.terminal import emit_json, note
from nodectl.facts.parsers.catalogue import as_document, parser_of, tools


@click.command(epilog=f"Tools: {', '.join(tools())}")
@click.argument("tool", type=OneOf(tools()), metavar="TOOL")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=str), metavar="FILE|-")
def parse(tool: str, file: str) -> None:
    """Read a tool's saved output and print what it says as JSON.

    What the tool does not give is null; what it refuses is null too, and stands in `unavailable` as printed.
    Ends with 1 and the reason where the text cannot be read; a text that ends within a line is told on standard error.
    """
    text = _text(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    document = as_document(parser_of(tool)(text))
    if text and not text.endswith("\n"):
        note(f"the text ends within a line; save what {tool} prints once more if it was cut there")
    emit_json(f"parse.{tool}", document)


def _text(data: bytes) -> str:
    """UTF-8, or what the file's own mark says: PowerShell saves as UTF-16."""
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if is_utf16 else "utf-8", errors="replace")
