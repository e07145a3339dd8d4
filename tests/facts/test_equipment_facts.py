"""RAID, BMC log, firmware, partitions, flow control, containers, DCGM: values, absence, garbage."""

import pytest

from nodectl.facts.board import BmcEvent
from nodectl.facts.gpu_services import DcgmHealth
from nodectl.facts.network import InterfaceFlow
from nodectl.facts.storage import Array
from nodectl.model.facts import Unread
from tests.facts.parsers.tool_outputs import recorded_text
from tests.facts.recorded import fact

MDSTAT = recorded_text("equipment-facts-mdstat.txt")
SEL = """\
   1 | 03/20/2021 | 00:58:40 | System Firmware Error #0x11 | No usable system memory | Asserted
   a | Pre-Init  |0000000042| Power Supply #0x51 | Failure detected | Asserted
   b | 12/03/24 | 11:27:10 UTC | Temperature #0x43 | Upper Critical going high | Deasserted
"""
HEALTH = recorded_text("equipment-facts-health.txt")


def test_each_array_its_disks_and_what_it_is_busy_with() -> None:
    assert fact("raid", mdstat=MDSTAT).arrays == (
        Array("md127", "active", ("sdb1", "sda1"), ("sda1",), 2, 1, "recovery 12.6%"),
        Array("md5", "active", ("nvme3n1", "nvme2n1", "nvme1n1", "nvme0n1"), (), 4, 3),
        Array("md9", "inactive", ("sdc1",), ()),
    )
    assert fact("raid", mdstat="Personalities : \nunused devices: <none>\n").arrays == ()


def test_the_bmcs_events() -> None:
    assert fact("bmc_log", bmc_log=SEL).events == (
        BmcEvent("03/20/2021", "00:58:40", "System Firmware Error #0x11", "No usable system memory", True),
        BmcEvent("", "0000000042", "Power Supply #0x51", "Failure detected", True),
        BmcEvent("12/03/24", "11:27:10 UTC", "Temperature #0x43", "Upper Critical going high", False),
    )
    assert fact("bmc_log", bmc_log="SEL has no entries\n").events == ()
    nobody = (1, "", "Could not open device at /dev/ipmi0 or /dev/ipmi/0: No such file or directory\n")
    assert fact("bmc_log", bmc_log=nobody).kind == "absent"
    assert fact("bmc_log", bmc_log=(1, "", "sudo: a password is required\n")).kind == "unknown"
    assert fact("bmc_log", bmc_log=127).kind == "absent"


def test_partitions_by_port_in_the_order_of_their_table() -> None:
    text = "mlx5_0/ports/1/pkeys/10:0x8012\nmlx5_0/ports/1/pkeys/0:0x7fff\nmlx5_1/ports/2/pkeys/0:0xFFFF\n"
    pkeys = fact("pkeys", pkeys=text)
    assert pkeys.ports == {"mlx5_0/1": ("0x7fff", "0x8012"), "mlx5_1/2": ("0xffff",)}
    assert (pkeys.limited("mlx5_0/1"), pkeys.limited("mlx5_1/2")) == (True, False)
    assert fact("pkeys", pkeys=3) == Unread("absent", "the kernel has no RDMA device")


def test_priorities_with_pause_frames_and_with_marks() -> None:
    text = "ens1\tpfc\tprio-pfc 0:off 3:on 5:on\nens1\troce_np\t00010000\nens2\troce_rp\t00000000\n"
    flow = fact("flow_control", flow_control=text).interfaces
    assert flow == {"ens1": InterfaceFlow((3, 5), (3,), None), "ens2": InterfaceFlow(None, None, ())}
    assert str(flow["ens1"]) == "PFC 3,5, ECN notified 3" and str(flow["ens2"]) == "ECN reacting off"


def test_dcgms_complaints_without_the_headings() -> None:
    health = fact("dcgm_health", dcgm_health=HEALTH)
    assert health == DcgmHealth(
        "Warning", ("PCIe system: Warning Detected more than 8 PCIe replays per minute for GPU 0",)
    )
    assert not health.healthy and not health.failed
    old = "| Group 1 | Overall Health: Warning |\n| GPU ID: 0 | Warning |\n|  | PCIe system: Warning - replays |\n"
    assert fact("dcgm_health", dcgm_health=old).complaints == ("GPU ID: 0: Warning PCIe system: Warning - replays",)
    refused = (1, "", "Error: unable to establish a connection to the specified host: localhost\n")
    assert fact("dcgm_health", dcgm_health=refused).kind == "absent"
    unwatched = "Error: Health watches not enabled. Please enable watches.\n"
    assert fact("dcgm_health", dcgm_health=(1, unwatched)) == DcgmHealth("", ())


@pytest.mark.parametrize(
    ("subject", "key"),
    [
        ("raid", "mdstat"),
        ("firmware", "firmware"),
        ("pkeys", "pkeys"),
        ("flow_control", "flow_control"),
        ("containers", "container_toolkit"),
        ("dcgm_health", "dcgm_health"),
    ],
)
def test_what_is_not_understood_is_unknown(subject: str, key: str) -> None:
    assert fact(subject, **{key: "?? \n"}).kind == "unknown"
