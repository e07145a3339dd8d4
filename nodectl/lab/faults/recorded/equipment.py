"""Recorded faults of disks, firmware, the BMC, DCGM's watches, partitions, flow control and containers."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault, Output, Outputs
from nodectl.lab.faults.editing import everywhere, once, recorded, text_of, with_text

_RAID1 = r"(active raid1 nvme1n1p2\[1\])( nvme0n1p2\[0\](?:.*\n.*)\[2/)2\] \[UU\]"


def _bmc(line: str) -> Edit:
    """One event more, of a day on which the controller had no clock yet."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        text = text_of(outputs, "bmc-log")
        return with_text(outputs, "bmc-log", f"{text}   6 | Pre-Init  |0000000042| {line} | Asserted\n")

    return edit


_COMPLAINT = (
    r"\1{0} |\n| GPU                       | 3 |\n"
    r"| Errors                    | Detected {1} |"
)


def _dcgm(word: str, complaint: str) -> Edit:
    return once("dcgm-health", r"(\| Overall Health +\| )Healthy +\|", _COMPLAINT.format(word, complaint))


FAULTS: tuple[Fault, ...] = (
    recorded("raid-disk-failed", "a disk of the RAID failed", "raid", once("mdstat", _RAID1, r"\1(F)\g<2>1] [U_]")),
    recorded(
        "raid-degraded",
        "the RAID runs without one of its disks",
        "raid",
        once("mdstat", r"(active raid1) nvme1n1p2\[1\]( nvme0n1p2\[0\](?:.*\n.*)\[2/)2\] \[UU\]", r"\1\g<2>1] [U_]"),
    ),
    recorded("raid-inactive", "an array does not run", "raid", once("mdstat", r"^(md1 : )active raid0", r"\1inactive")),
    recorded(
        "drive-failing",
        "a drive calls itself failing",
        "drive_health",
        once("drives", r'"passed": true', '"passed": false'),
        once("drives", r'"critical_warning": 0', '"critical_warning": 4'),
    ),
    recorded(
        "drive-spare",
        "the spare blocks of a drive are used up",
        "drive_health",
        once("drives", r'"critical_warning": 0', '"critical_warning": 1'),
        once("drives", r'"available_spare": 100', '"available_spare": 4'),
    ),
    recorded(
        "drive-worn",
        "the life of a drive is nearly used up",
        "drive_health",
        once("drives", r'"percentage_used": \d+', '"percentage_used": 97'),
    ),
    recorded(
        "drive-errors",
        "a drive has lost data",
        "drive_health",
        once("drives", r'"media_errors": 0', '"media_errors": 5'),
    ),
    recorded(
        "bmc-memory",
        "the BMC has logged memory that could not be corrected",
        "bmc_log",
        _bmc("Memory #0x87 | Uncorrectable ECC"),
    ),
    recorded(
        "bmc-power",
        "the BMC has logged a power supply that failed",
        "bmc_log",
        _bmc("Power Supply #0x51 | Failure detected"),
    ),
    recorded(
        "bmc-predictive",
        "the BMC expects a power supply to fail",
        "bmc_log",
        _bmc("Power Supply #0x52 | Predictive Failure"),
    ),
    recorded(
        "bmc-fan", "the BMC has logged a fan that is too slow", "bmc_log", _bmc("Fan #0x31 | Lower Critical going low")
    ),
    recorded(
        "dcgm-failure",
        "DCGM's watches report a failure",
        "dcgm_health",
        _dcgm("Failure", "an uncorrectable page retirement on GPU 3"),
    ),
    recorded(
        "dcgm-warning",
        "DCGM's watches report a warning",
        "dcgm_health",
        _dcgm("Warning", "more than 8 PCIe replays per minute for GPU 3"),
    ),
    recorded(
        "dcgm-diag",
        "DCGM's last test of the memory found an error",
        "dcgm_diag",
        everywhere("dcgm-diag", r"^(GPU \d+(?: +0){6} +)0 ", r"\g<1>58"),
    ),
    recorded(
        "open-files",
        "nearly all files that the kernel allows are open",
        "open_files",
        once("file-nr", r"^\d+\t0\t\d+", "9600512\t0\t9800000"),
    ),
    recorded(
        "pkey-limited",
        "an InfiniBand port is a limited member of its partition",
        "ib_pkey",
        once("pkeys", r"(mlx5_\d+/ports/1/pkeys/0:)0xffff", r"\g<1>0x7fff"),
    ),
    recorded(
        "pkey-other",
        "one host's port is in another partition",
        "fleet_pkeys",
        once("pkeys", r"(mlx5_\d+/ports/1/pkeys/0:)0xffff", r"\g<1>0x8012"),
    ),
    recorded(
        "pfc-off",
        "one host's RoCE interface sends no pause frames",
        "fleet_flow_control",
        once("flow-control", r"3:on", "3:off"),
    ),
    recorded(
        "ecn-off",
        "one host's RoCE interface does not react to congestion",
        "fleet_flow_control",
        once("flow-control", r"(roce_rp\t)\d+", r"\g<1>00000000"),
    ),
    recorded(
        "bios-other",
        "one host's board has older firmware",
        "fleet_board_firmware",
        once("firmware", r"(bios_version\t).*", r"\g<1>0.9"),
    ),
    recorded(
        "microcode-other",
        "one host's processors have older microcode",
        "fleet_microcode",
        once("firmware", r"(microcode\t).*", r"\g<1>0x1000065"),
    ),
    recorded(
        "disk-firmware-other",
        "one disk of one host has older firmware",
        "fleet_disk_firmware",
        once("firmware", r"(nvme\t.*\t).*", r"\g<1>GDC5302Q"),
    ),
    recorded(
        "container-toolkit-other",
        "one host has an older container toolkit",
        "fleet_container_toolkit",
        once("container-toolkit", r"version [\d.]+", "version 1.14.3"),
    ),
    recorded(
        "read-request",
        "one RDMA adapter asks for short PCIe reads",
        "fleet_read_request",
        once(
            "lspci-acs",
            r"(Infiniband controller: Mellanox(?:.|\n)*?MaxReadReq )4096",
            r"\g<1>512",
        ),
    ),
)
