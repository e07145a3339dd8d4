"""perfquery: one block, several, both counter sets, and the tool's own failures."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.fabric import PortCounters, parse_perfquery

EXTENDED = """\
# Port extended counters: Lid 2052 port 1 (CapMask: 0x5300 CapMask2: 0x0000002)
PortSelect:......................1
CounterSelect:...................0x1b01
PortXmitData:....................178791657177235
VL15Dropped:.....................3
QP1Dropped:......................4
"""
SHORT = """\
# Port counters: DR path slid 65535; dlid 65535; 0,1 port 255 (CapMask: 0x00)
SymbolErrorCounter:..............65535
"""


@pytest.mark.parametrize(
    "text",
    [EXTENDED + SHORT, EXTENDED + "\n" + SHORT, "ibwarn: [1] late\r\n" + (EXTENDED + SHORT).replace("\n", "\r\n")],
)
def test_every_block(text: str) -> None:
    assert parse_perfquery(text).ports == (
        PortCounters(
            lid=2052,
            port=1,
            kind="Port extended",
            counters={
                "PortSelect": 1,
                "CounterSelect": 0x1B01,
                "PortXmitData": 178791657177235,
                "VL15Dropped": 3,
                "QP1Dropped": 4,
            },
        ),
        PortCounters(None, 255, "Port", {"SymbolErrorCounter": 65535}),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("ibwarn: [9] mad_rpc_open_port: can't open UMAD port ((null):0)", "can't open UMAD port"),
        ("x\nperfquery: iberror: failed: smp query nodeinfo failed", "smp query nodeinfo failed"),
        ("PortSelect:......1", "no counters"),
        ("# Port extended counters: Lid 2052", "line 1.*port is missing"),
        (EXTENDED + "PortRcvData:....................", "line 7.*no count"),
        (EXTENDED + "PortRcvDa", "line 7.*no count"),
        (EXTENDED.replace("178791657177235", "1787x"), "line 4.*no count"),
        (EXTENDED.replace("178791657177235", "9" * 30), "line 4.*no count"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_perfquery(text)
