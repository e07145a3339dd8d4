"""ibstatus: what sysfs says of a port, with the state's number taken off."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.ports import Ibstatus, PortStatus, parse_ibstatus


def printed(port: PortStatus, state_code: int = 4, physical_code: int = 5) -> str:
    """As the script prints it."""
    return (
        f"Infiniband device '{port.device}' port {port.port} status:\n\tdefault gid:\t {port.gid}\n"
        f"\tbase lid:\t {port.lid:#x}\n\tsm lid:\t\t 0x4\n\tstate:\t\t {state_code}: {port.state}\n"
        f"\tphys state:\t {physical_code}: {port.physical_state}\n\trate:\t\t {port.rate_text}\n"
        f"\tlink_layer:\t {port.link_layer}\n\n"
    )


IB = PortStatus(
    "ibp75s0", 1, "ACTIVE", "LinkUp", 200.0, "200 Gb/sec (2X NDR)", "InfiniBand", "fe80:0000:0000:0000:<masked>", 128
)
DOWN = PortStatus(
    *("mlx5_1", 2, "DOWN", "Disabled", 2.5, "2.5 Gb/sec (1X SDR)", "Ethernet"),
    *("fe80:0000:0000:0000:1e34:daff:fe5a:1fec", 0),
)
TEXT = printed(IB) + printed(DOWN, 1, 3)


@pytest.mark.parametrize("text", [TEXT, TEXT.replace("\t", "  "), "$ ibstatus\r\n" + TEXT.replace("\n", "\r\n")])
def test_every_value(text: str) -> None:
    assert parse_ibstatus(text) == Ibstatus((IB, DOWN))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("Fatal error:  No devices", "No devices"),
        ("cat: nothing", "no port"),
        (TEXT.replace("port 1 status:", "port"), "line 1.*cut"),
        (TEXT.replace("200 Gb/sec (2X NDR)", "200 Gb"), "line 7"),
        (TEXT.replace("4: ACTIVE", "4: ACT"), "line 5.*cut"),
        (TEXT.replace("4: ACTIVE", ""), "line 5.*cut"),
        (TEXT + "Infiniband device 'a' port 1 status:\n\tphys st", "phys st.*cut"),
        (TEXT.replace("0x80", "0xzz"), "line 3.*no whole number"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_ibstatus(text)


@pytest.mark.parametrize("row", ["state:\t\t 4", "phys state:\t 5", "default gid:\t fe80:0000:0000:0000:71"])
def test_a_value_that_is_cut(row: str) -> None:
    with pytest.raises(ParseError, match=r"line 2: .*the row is cut"):
        parse_ibstatus(f"Infiniband device 'mlx5_3' port 1 status:\n\t{row}")
