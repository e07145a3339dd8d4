"""NICs of two ports, each on a switch of its own: one NIC beside its GPU; a port without a switch is a fault.

The recording is made up: four GPUs, four ConnectX-8 of two functions, interfaces whose names tell nothing of the NIC.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.topology.test_node import topo
from tests.topology.test_sources import lldp

PORTS = [(nic, plane) for nic in range(4) for plane in range(2)]
SYSFS = "\n".join(
    f"mlx5_{n}/hca_type:MT4131\nmlx5_{n}/ports/1/state:4: ACTIVE\nmlx5_{n}/ports/1/link_layer:Ethernet\n"
    f"mlx5_{n}/pci:../../../0000:{nic}3:00.{plane}\nmlx5_{n}/net/port{n}:0"
    for n, (nic, plane) in enumerate(PORTS)
)


ROWS = [["X" if gpu == other else "NV18" for other in range(4)] for gpu in range(4)]
NEAR = [["PXB" if nic == gpu else "NODE" for nic, _ in PORTS] for gpu in range(4)]
TOPO = topo(*(" ".join([*row, *ways, "0"]) for row, ways in zip(ROWS, NEAR, strict=True)))


def record(folder: Path, elsewhere: dict[int, str]) -> str:
    """Three hosts, each port on the leaf of its rail and plane, but for these of the last one."""
    leaves = {number: f"rail{nic}-{plane}" for number, (nic, plane) in enumerate(PORTS)}
    for host, switches in (("gpu0", leaves), ("gpu1", leaves), ("gpu2", leaves | elsewhere)):
        seen = lldp(*((f"port{number}", switch, True) for number, switch in switches.items() if switch))
        outputs = {"nvidia-smi-topo": TOPO, "ib-sysfs": f"{SYSFS}\n", "lldpctl": json.dumps(seen)}
        (folder / host).mkdir(parents=True)
        for key, text in outputs.items():
            (folder / host / f"{key}.out").write_text(text)
        entry = {"exit_status": 0, "duration_s": 0.1, "time": "2026-10-12T08:00:03Z"}
        (folder / host / "index.json").write_text(json.dumps([{"key": key, "argv": [key], **entry} for key in outputs]))
    return str(folder)


@pytest.mark.parametrize(("switch", "warned"), [("rail1-1", []), ("", ["fabric_node"])])
def test_a_port_without_a_switch_is_a_warning(nodectl: Cli, tmp_path: Path, switch: str, warned: list[str]) -> None:
    folder = record(tmp_path / "made", {3: switch})
    found = json.loads(nodectl("topology", "--fabric", "--replay", folder, "--output", "json", check=False).stdout)
    warnings = [(each["host"], each["check"]) for each in found["findings"] if each["status"] == "warning"]
    assert warnings == [("gpu2", check) for check in warned]
    assert found["hosts"]["gpu0"]["gpu_nic"]["GPU1"]["devices"] == ["mlx5_2", "mlx5_3"]
