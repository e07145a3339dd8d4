"""Reads `ncclras -v` (NCCL 2.24 and later), text or JSON: which communicators hang, and which processes are gone."""

from __future__ import annotations

from nodectl.errors import ParseError
from nodectl.parsers.nccl.ncclras_answer import TOOL, NcclRas
from nodectl.parsers.nccl.ncclras_json import document_of, ras_of_json
from nodectl.parsers.nccl.ncclras_text import ras_of_text
from nodectl.parsers.text import Line, lines_of, plain, readable


def parse_ncclras(text: str) -> NcclRas:
    """ParseError where it is neither form, is cut within a row, or says why there is nothing."""
    lines = lines_of(text, TOOL)
    document = document_of(plain(text))
    if document is not None:
        return ras_of_json(document)
    _require_answer(lines)
    return ras_of_text(lines)


def _require_answer(lines: list[Line]) -> None:
    for line in readable(lines):
        text = line.text.strip()
        if text.startswith(("Connecting to", "Failed to connect", "ncclras:", "Connection refused")) or (
            "command not found" in text[:400]
        ):
            raise ParseError(f"{TOOL}: it got no answer: {text[:200]}")
        if text.startswith(("Job summary", "Group ", "Communicators")):
            return
