"""Recorded faults between devices: NVLink, peer access, fabric manager, PCIe, InfiniBand."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault
from nodectl.lab.faults.editing import everywhere, once, recorded, says

_FABRIC_UNIT = r"(Id=nvidia-fabricmanager\.service\nLoadState=loaded\nActiveState=)active\nSubState=running"
_CA = r"^(CA 'mlx5_\d+'\n(?:\t.*\n)*?\t\tState: )Active\n(\t\tPhysical state: )LinkUp"


def _port(file: str, value: str) -> Edit:
    """A file of the first adapter's port."""
    return once("ib-sysfs", rf"^(mlx5_\d+/ports/1/{file}:).*", rf"\g<1>{value}")


def _counter(name: str, value: int) -> Edit:
    return once("ib-sysfs", rf"^(mlx5_\d+/ports/1/\w+/{name}:)\d+", rf"\g<1>{value}")


def _manager(name: str, about: str, line: str) -> Fault:
    """Fabric manager's log has one line more."""
    told = once("fabric-manager-log", r"\Z", f"[Oct 11 2026 07:53:55] {line}\n")
    return recorded(f"fabric-log-{name}", about, "fabric_manager_log", told)


FAULTS: tuple[Fault, ...] = (
    _manager(
        "fatal",
        "fabric manager saw a fatal error of an NVSwitch",
        "[ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:c6:00.0 "
        "physical id 3 port 33",
    ),
    _manager(
        "nonfatal",
        "fabric manager saw an error of an NVSwitch that is not fatal",
        "[ERROR] [tid 841] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:c6:00.0 "
        "physical id 3 port 61",
    ),
    _manager(
        "gpu-handle",
        "fabric manager does not find a GPU",
        "[ERROR] [tid 1230079] failed to find the GPU handle 5410063385821516767 in the multicast team request 61",
    ),
    _manager(
        "topology",
        "fabric manager misses an NVSwitch",
        "[ERROR] detected number of NVSwitches don't match with any supported system topology, aborting fabric manager",
    ),
    _manager("other", "fabric manager complains in words that nobody knows", "[ERROR] [tid 7] unit 4 gave up"),
    recorded(
        "pci-gone",
        "a GPU's registers read as ones: lspci lists it, and it does not answer",
        "pcie_gone",
        once(
            "lspci-acs",
            r"^(\S+ (?:3D|VGA compatible) controller: NVIDIA.*\(rev )\w\w(\).*\n)(?:[ \t].*\n)+",
            r"\1ff\2\t!!! Unknown header type 7f\n",
        ),
    ),
    recorded(
        "nvlink-report-cut",
        "the report of the NVLinks ends in the middle of a GPU",
        "nvlink_active",
        once("nvidia-smi-nvlink", r"(?s)(GPU 5: .*?Link 3: [^\n]*\n).*", r"\1"),
    ),
    recorded(
        "nvlink-down",
        "one NVLink is inactive",
        "nvlink_active",
        once("nvidia-smi-nvlink", r"(Link 5: )[\d.]+ GB/s", r"\1<inactive>"),
    ),
    recorded(
        "nvlink-errors",
        "one NVLink has many errors",
        "nvlink_errors",
        once("nvidia-smi-nvlink-errors", r"(Link 2: CRC Errors: )0", r"\g<1>61234"),
    ),
    recorded(
        "p2p-off",
        "two GPUs cannot reach each other",
        "p2p",
        once("nvidia-smi-p2p", r"^( GPU3\t)OK", r"\1TNS"),
    ),
    recorded(
        "topology",
        "two GPUs talk through the processors",
        "gpu_topology",
        once("nvidia-smi-topo", r"^(GPU0\t X \t)NV\d+", r"\1SYS"),
        once("nvidia-smi-topo", r"^(GPU1\t)NV\d+", r"\1SYS"),
    ),
    recorded(
        "fabric-manager-down",
        "the fabric manager does not run",
        "fabric_manager",
        once("units", _FABRIC_UNIT, r"\1failed\nSubState=failed"),
    ),
    recorded(
        "fabric-manager-version",
        "the fabric manager is not of the driver's version",
        "fabric_manager_version",
        once("fabric-manager", r"[\d.]+$", "580.65.06"),
    ),
    Fault(
        "acs-on",
        "a bridge sends traffic between devices through the processor",
        ("fleet_acs", "access_control"),
        once(
            "lspci-acs",
            r"(ACSCtl:\t)SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-",
            r"\1SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+",
        ),
    ),
    recorded(
        "nic-pcie-width",
        "one InfiniBand adapter talks over 8 lanes of 16",
        "nic_pcie_width",
        once(
            "lspci-acs",
            r"((?:Infiniband|Ethernet) controller: Mellanox(?:.|\n)*?LnkSta:\tSpeed \S+ \(ok\), )Width x16 \(ok\)",
            r"\1Width x8 (downgraded)",
        ),
    ),
    recorded(
        "ib-down",
        "one InfiniBand port is switched off",
        "ib_state",
        _port("state", "1: DOWN"),
        _port("phys_state", "3: Disabled"),
        once("ibstat", _CA, r"\1Down\n\2Disabled"),
    ),
    recorded(
        "ib-spare-down",
        "an RDMA port beyond the profile's is down on this host only",
        "fleet_ib_spare_ports",
        once("ib-sysfs", r"^(mlx5_4/ports/1/state:).*", r"\g<1>1: DOWN"),
        once("ib-sysfs", r"^(mlx5_4/ports/1/phys_state:).*", r"\g<1>3: Disabled"),
    ),
    recorded(
        "ib-polling",
        "one InfiniBand port looks for its cable",
        "ib_physical",
        _port("state", "1: DOWN"),
        _port("phys_state", "2: Polling"),
        once("ibstat", _CA, r"\1Down\n\2Polling"),
    ),
    recorded(
        "ib-rate",
        "one InfiniBand port is at half its rate",
        "ib_rate",
        _port("rate", "100 Gb/sec (2X HDR)"),
    ),
    Fault("ib-no-manager", "one InfiniBand port has no subnet manager", ("ib_subnet_manager",), _port("sm_lid", "0x0")),
    recorded(
        "ib-missing",
        "one InfiniBand adapter is gone",
        "ib_count",
        everywhere("ib-sysfs", r"^mlx5_3/.*\n", ""),
        everywhere("rdma-link", r"^link mlx5_3/.*\n", ""),
    ),
    recorded(
        "ib-symbol-errors", "one InfiniBand port counts symbol errors", "ib_errors", _counter("symbol_error", 5417)
    ),
    Fault("ib-flaps", "one InfiniBand link went down nine times", ("ib_flaps",), _counter("link_downed", 9)),
    recorded(
        "ib-discards",
        "one InfiniBand port throws packets away",
        "ib_discards",
        _counter("port_xmit_discards", 918273),
    ),
    recorded(
        "ib-retries",
        "one InfiniBand port waits for answers that do not come",
        "ib_retries",
        _counter("local_ack_timeout_err", 61234),
    ),
    recorded(
        "ib-firmware",
        "one host's adapters have older firmware",
        "fleet_ib_firmware",
        everywhere("ib-sysfs", r"(/fw_ver:)[\d.]+", r"\g<1>20.35.1012"),
    ),
    recorded(
        "ib-silent",
        "nothing answers in time that asks RDMA devices",
        "hung",
        says(("ib-sysfs", "ibstat", "ibv-devinfo", "show-gids"), exit_status=124),
    ),
)
