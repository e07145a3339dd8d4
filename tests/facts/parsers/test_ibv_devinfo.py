"""ibv_devinfo, short and -v, of the inbox and of the vendor's packages."""

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.ports import Device, DevicePort, IbvDevinfo, PortGid, parse_ibv_devinfo
from tests.facts.parsers.tool_outputs import recorded_text

RECORDED = Path(__file__).parents[2] / "fixtures" / "ibverbs" / "ibv_devinfo-v.txt"
HEAD = recorded_text("ibv-devinfo-head.txt")
PORT = recorded_text("ibv-devinfo-port.txt")
FOUND = Device(
    *("mlx5_0", "InfiniBand", "28.39.1002", "946d:ae03:00cd:e72c", "946d:ae03:00cd:e72d", "MT_0000000838"),
    (DevicePort(1, "PORT_ACTIVE", 4096, 2048, "InfiniBand", 75, None, None, ()),),
)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + PORT,
        HEAD + "\tDevice ports:\n" + PORT,
        (HEAD + PORT).replace("\t", "    "),
        "libibverbs: Warning: no userspace device-specific driver found\n" + HEAD + PORT,
    ],
    ids=["inbox", "vendor", "spaces", "warning"],
)
def test_every_value(text: str) -> None:
    assert parse_ibv_devinfo(text) == IbvDevinfo((FOUND,))


def test_recorded_soft_roce_with_its_gids() -> None:
    (device,) = parse_ibv_devinfo(RECORDED.read_text()).devices
    assert (device.name, device.firmware, device.board_id) == ("rxe0", "0.0.0", None)
    (port,) = device.ports
    assert (port.active_mtu_bytes, port.active_width, port.active_speed) == (1024, "1X", "2.5 Gbps")
    assert port.gids == (PortGid(0, "fe80::5054:ff:fe00:1", "RoCE v2"), PortGid(1, "::ffff:10.99.0.11", "RoCE v2"))


def test_an_mtu_that_verbs_does_not_know_is_unavailable() -> None:
    (device,) = parse_ibv_devinfo(HEAD + PORT.replace("2048 (4)", "invalid MTU (0)")).devices
    assert device.ports[0].active_mtu_bytes is None
    assert device.ports[0].unavailable == {"active_mtu_bytes": "invalid MTU"}


def test_ports_and_devices_before_a_failure_are_kept() -> None:
    found = parse_ibv_devinfo(HEAD + PORT + HEAD.replace("mlx5_0", "mlx5_1") + "Failed to query port 1 props\n")
    assert [(device.name, len(device.ports)) for device in found.devices] == [("mlx5_0", 1), ("mlx5_1", 0)]
    assert found.error == "Failed to query port 1 props"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("No IB devices found\n", "No IB devices found"),
        ("IB device 'mlx5_9' wasn't found", "mlx5_9"),
        ("Failed to get IB devices list: Function not implemented", "Function not implemented"),
        ("other text", "no device"),
        ("hca_id:\n", "line 1.*cut"),
        (HEAD + PORT.replace("PORT_ACTIVE (4)", "PORT_ACT"), "line 12.*brackets"),
        (HEAD + PORT.replace("4096 (5)", "4o96 (5)"), "line 13.*4o96"),
        (HEAD + PORT.replace("port:\t1", "port:\tx"), "line 11"),
        (HEAD.replace("946d:ae03:00cd:e72c", "946d:ae03"), "line 4.*16 digits"),
        (HEAD + PORT + "\t\tport:\t2\n\t\t\tmax_m", "max_m.*cut"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_ibv_devinfo(text)
