"""Outputs cut or torn at any place: nothing vanishes, nothing is invented, and nothing hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document
from nodectl.facts.parsers.linux.dmesg import parse_dmesg
from nodectl.facts.parsers.rdma.ports import parse_ibstat, parse_rdma_link
from tests.facts.parsers.test_outputs import OUTPUTS, id_of
from tests.facts.parsers.tool_outputs import PARSERS, tool_output

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("garbage", ["", "x ", "\ufffd\ufffd"])
@pytest.mark.parametrize(
    ("parse", "text", "head"),
    [
        (parse_ibstat, tool_output("ibstat", "two.txt"), "CA '"),
        (parse_rdma_link, tool_output("rdma-link", "two.txt"), "link "),
    ],
    ids=["ibstat", "rdma"],
)
def test_a_block_without_its_name_is_refused(
    parse: Callable[[str], object], text: str, head: str, garbage: str, which: int
) -> None:
    parse(text)
    at = [place for place in range(len(text)) if text.startswith(head, place)][which]
    torn = text[:at] + garbage + text[at + (0 if garbage else 1) :]
    with pytest.raises(ParseError, match="cut or garbled"):
        parse(torn)


@pytest.mark.parametrize("length", range(len("NVRM: Xid"), len("NVRM: Xid (PCI:0000:0f:00): 79")))
def test_an_xid_that_is_cut_is_no_xid(length: int) -> None:
    log = parse_dmesg(f"[  5.1] mce: [Hardware Error]: Machine check events logged\n[  5.100000] {XID[:length]}")
    assert [event.kind for event in log.events] == ["mce"] and log.refused == 1
    assert log.refused_line == f"line 2: {XID[:length].strip()}"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for name, item in items:
            yield from leaves(item, path if name is None else f"{path}/{name}")
    elif value:
        yield path, value


# these count lines, say that the text is cut, or depend on what follows
OF_THE_WHOLE = (
    "/is_cut",
    "/traceback",
    "/tests/text",
    "/lines",
    "/error/kind",
    "/error/text",
    "/events/time",
    "/events/text",
)


@pytest.mark.parametrize("path", [path for path in OUTPUTS if path.with_suffix(".json").exists()], ids=id_of)
def test_a_text_that_ends_early_has_no_value_that_the_whole_lacks(path: Path) -> None:
    parse, lines = PARSERS[path.parent.name], path.read_bytes().decode().splitlines(keepends=True)
    whole = set(leaves(as_document(parse("".join(lines)))))
    for end in range(1, len(lines), 1 + len(lines) // 40):
        try:
            part = as_document(parse("".join(lines[:end])))
        except ParseError:
            continue
        # of a part that says so itself the last GPU counts for nothing
        if not part.get("is_cut"):
            assert [name for name, _ in set(leaves(part)) - whole if not name.endswith(OF_THE_WHOLE)] == [], end
