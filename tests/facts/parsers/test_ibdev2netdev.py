"""ibdev2netdev: every column of its three forms, a cut row, and its place in `nodectl parse`."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.interfaces import PortInterface, parse_ibdev2netdev
from tests.facts.parsers.tool_outputs import tool_output


def test_every_column() -> None:
    assert parse_ibdev2netdev(tool_output("ibdev2netdev", "two-ports.txt")).ports == (
        PortInterface("mlx5_0", 1, "ib0", True),
        PortInterface("mlx5_3", 2, "ens4f1np1", False),
    )


def test_every_column_of_the_verbose_form() -> None:
    assert parse_ibdev2netdev(tool_output("ibdev2netdev", "verbose.txt")).ports == (
        PortInterface(
            *("mlx5_0", 1, "ib0", True, "ACTIVE", "0000:0c:00.0", "20.35.2000"),
            *("MT4123 - MCX653105A-HDAT", "ConnectX-6 VPI adapter card"),
        ),
        PortInterface(
            *("mlx5_9", 2, "enp225s0f1np1", False, "DOWN", "0000:e1:00.1", "22.39.1002"),
            *("MT4125 - MCX623106AS", "CX6DX 2P"),
        ),
    )


@pytest.mark.parametrize("row", ["mlx5_1 port 1 ==> ib1 (NA)", "mlx5_1 port 1 ==> ib1 ()", "mlx5_1 port 1 <===> ib1"])
def test_an_interface_without_a_state_is_neither_up_nor_down(row: str) -> None:
    assert parse_ibdev2netdev(row).ports == (PortInterface("mlx5_1", 1, "ib1", None),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mlx5_0 port 1 ==> ib", "line 1.*cut"),
        ("mlx5_0 port 1", "line 1.*cut"),
        ("mlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 <==", "line 2.*cut"),
        ("0000:0c:00.0 mlx5_0 (MT4123 - M) CX fw 20.35 port 1 (ACTIVE) ==> ib0 (U", "line 1.*cut"),
        ("0000:0c:00.0 mlx5_0 (MT4123 - M) CX fw 20.35 port", "line 1.*cut"),
        ("bash: ibdev2netdev: command not found", "no port.*not found"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_ibdev2netdev(text)
