"""NICs, RDMA ports and GIDs from what a host prints, and the scripts that gather it."""

import subprocess
from pathlib import Path

import pytest

from nodectl.facts.base import shell
from nodectl.facts.rdma import Gid
from tests.facts.parsers.tool_outputs import recorded_text
from tests.facts.recorded import fact

IP = """[{"ifindex":7,"ifname":"ens1","flags":["BROADCAST","UP","LOWER_UP"],"operstate":"UP","mtu":9000,"max_mtu":9978,
"address":"02:00:00:00:00:07","master":"bond0","addr_info":[],
"stats64":{"rx":{"errors":3,"dropped":4,"crc_errors":5},"tx":{"errors":6,"dropped":0,"carrier_changes":9}}},
{"ifindex":8,"ifname":"bond0","flags":["UP"],"operstate":"UP","mtu":9000,"address":"02:00:00:00:00:07",
"linkinfo":{"info_kind":"bond","info_data":{"mode":"802.3ad"}},"addr_info":[]}]
"""
SYSFS = (
    "ens1\tindex=7\tmac=02:00:00:00:00:07\tspeed=100000\tdriver=mlx5_core\tpci=0000:c1:00.0\tnuma=-1"
    "\tfirmware=16.35.2000 (MT_0000000080)\n"
)
PORTS = recorded_text("network-facts-ports.txt")


def test_an_interface_with_all_that_the_kernel_tells() -> None:
    nics = fact("nics", ip_address=IP, nics_sysfs=SYSFS)
    nic = nics["ens1"]
    assert (nic.speed_mbit, nic.driver, nic.pci_address) == (100000, "mlx5_core", "0000:c1:00.0")
    assert nic.numa_node is None
    assert nic.firmware == "16.35.2000 (MT_0000000080)"
    assert (nic.carrier, nic.master, nic.mtu_max, nic.kind) == (True, "bond0", 9978, None)
    assert (nic.counters["rx_crc_errors"], nic.counters["tx_errors"], nic.counters["tx_carrier_changes"]) == (5, 6, 9)
    assert (nics["bond0"].kind, nics["bond0"].bond_mode, nics["bond0"].carrier) == ("bond", "802.3ad", False)
    assert fact("nics", ip_address=IP)["ens1"].speed_mbit is None


def test_ports_in_the_order_of_their_numbers() -> None:
    down, up = fact("ib_ports", ib_sysfs=PORTS)
    assert (up.label, up.state, up.physical_state, up.rate_gbit_s, up.width) == (
        "mlx5_10/1",
        "ACTIVE",
        "LinkUp",
        200.0,
        4,
    )
    assert (up.lid, up.sm_lid, up.firmware, up.board_id, up.type) == (28, 1, "20.35.2000", "MT_0000000223", "MT4123")
    assert (up.netdev, up.pci_address, up.numa_node) == ("ib0", "0000:0c:00.0", 3)
    assert up.counters == {"symbol_error": 2, "link_downed": 255, "out_of_sequence": 3}
    assert (down.label, down.state, down.numa_node, down.netdev, down.link_layer) == (
        "mlx5_2/1",
        "DOWN",
        None,
        "ens1",
        "Ethernet",
    )


def test_gids_say_of_which_kind_they_are() -> None:
    assert fact("gids", ib_sysfs=PORTS) == (
        Gid("mlx5_2", 1, 3, "0000:0000:0000:0000:0000:ffff:0a14:000b", "v2", "ens1", "10.20.0.11"),
        Gid("mlx5_2", 1, 10, "fe80:0000:0000:0000:0000:0000:0000:0001", "v1"),
        Gid("mlx5_10", 1, 0, "fe80:0000:0000:0000:b83f:d203:0000:000a"),
    )
    assert fact("gids", ib_sysfs=3).kind == "absent"


@pytest.fixture
def infiniband(tmp_path: Path) -> Path:
    """A tree like /sys/class/infiniband, of the texts above."""
    device = tmp_path / "pci" / "0000:0c:00.0"
    for line in PORTS.splitlines():
        path, _, value = line.partition(":")
        if path.startswith("mlx5_10/") and "/pci" not in path and "/net/" not in path:
            file = tmp_path / "class" / path.replace("/device/", "/")
            file = device / path.rpartition("/")[2] if "/device/" in path else file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(value + "\n")
    zero = tmp_path / "class/mlx5_10/ports/1/gids/1"
    zero.write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    (device / "net/ib0").mkdir(parents=True)
    (device / "net/ib0/dev_port").write_text("0\n")
    (tmp_path / "class/mlx5_10/device").symlink_to(device)
    return tmp_path / "class"


@pytest.mark.parametrize("sh", ["sh", "bash"])
def test_the_script_prints_what_is_read(infiniband: Path, sh: str) -> None:
    script = shell("ib-sysfs").replace("/sys/class/infiniband", str(infiniband))
    done = subprocess.run([sh, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    wanted = [line for line in PORTS.splitlines() if line.startswith("mlx5_10") and "/pci:" not in line]
    assert {*done.stdout.splitlines()} - {*wanted} == {f"mlx5_10/pci:{infiniband.parent}/pci/0000:0c:00.0"}
    assert {*wanted} <= {*done.stdout.splitlines()}
    missing = shell("ib-sysfs").replace("/sys/class/infiniband", str(infiniband / "none"))
    assert subprocess.run([sh, "-c", missing], capture_output=True, check=False).returncode == 3
