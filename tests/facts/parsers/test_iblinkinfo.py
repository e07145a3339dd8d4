"""iblinkinfo: every column, ports that are down, and cut rows."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.fabric import LinkPort, parse_iblinkinfo
from tests.facts.parsers.tool_outputs import tool_output

TEXT = tool_output("iblinkinfo", "two.txt")
LEAF, LEAF_GUID = "MF0;leaf1:MQM9700/U1", "0x08c0eb0300bb0001"
UP = ("Active", "LinkUp")


def test_every_column() -> None:
    first, _, slow, down = parse_iblinkinfo(TEXT).ports
    adapter = ("node1 mlx5_0", "CA", "0x08c0eb0300aa0001", 11, 1, "4X", 53.125)
    assert first == LinkPort(*adapter, *UP, LEAF, 2, 7, "")
    narrow = (LEAF, "Switch", LEAF_GUID, 2, 8, "2X", 26.5625)
    assert slow == LinkPort(*narrow, *UP, "node2 mlx5_0", 12, 1, "Could be 4X")
    nothing = (LEAF, "Switch", LEAF_GUID, 2, 9, None, None)
    assert down == LinkPort(*nothing, "Down", "Polling", None, None, None, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT[: TEXT.index("LinkUp")], r"line 2.*cut"),
        (TEXT[TEXT.index("\n") + 1 :], r"line 1.*node .* is missing"),
        ("ibwarn: [7] mad_rpc_open_port: can't open UMAD port\n", "no port: .*can't open"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_iblinkinfo(text)
