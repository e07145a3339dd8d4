"""A block whose first line is torn is refused: its device must neither vanish nor become a part of the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.interfaces import parse_rdma_link
from nodectl.facts.parsers.rdma.ports import parse_ibstat, parse_ibstatus

IBSTAT = (Path(__file__).parents[2] / "fixtures" / "tools" / "ibstat" / "two.txt").read_text()
IBSTATUS = "".join(
    f"Infiniband device 'mlx5_{number}' port 1 status:\n\tdefault gid:\t fe80::{number}\n\tstate:\t\t 4: ACTIVE\n\n"
    for number in (0, 1)
)
RDMA_LINK = "".join(
    f"link mlx5_{number}/1 state ACTIVE physical_state LINK_UP netdev eth{number}\n" for number in (0, 1)
)
HEADS = {
    "ibstat": (parse_ibstat, IBSTAT, "CA '"),
    "ibstatus": (parse_ibstatus, IBSTATUS, "Infiniband device"),
    "rdma": (parse_rdma_link, RDMA_LINK, "link mlx5"),
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("garbage", ["", "x ", "\ufffd\ufffd"])
def test_a_block_without_its_name_is_refused(name: str, which: int, garbage: str) -> None:
    parse, text, head = HEADS[name]
    parse(text)
    at = [place for place in range(len(text)) if text.startswith(head, place)][which]
    torn = text[:at] + garbage + text[at + (0 if garbage else 1) :]
    with pytest.raises(ParseError, match="cut or garbled"):
        parse(torn)
