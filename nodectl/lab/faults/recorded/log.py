"""Recorded faults that only the kernel's log tells of: Xid, SXid, machine checks, killed and crashed processes."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault, Outputs
from nodectl.lab.faults.editing import bus_of, logged


def _xid(number: int, code: int, message: str) -> Edit:
    return logged(lambda outputs: f"NVRM: Xid (PCI:{bus_of(outputs, number)}): {code}, {message}")


def _sxid(outputs: Outputs) -> str:
    return "nvidia-nvswitch2: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


def _said(text: str) -> Edit:
    return logged(lambda outputs: text)


_RAN = "pid=19174, name=python3, "


FAULTS: tuple[Fault, ...] = (
    Fault(
        "xid-79", "Xid 79: a GPU has fallen off the bus", ("xid",), _xid(3, 79, f"{_RAN}GPU has fallen off the bus.")
    ),
    Fault(
        "xid-48",
        "Xid 48: an ECC error of two bits",
        ("xid",),
        _xid(
            1,
            48,
            f"{_RAN}An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
            "partition 2, subpartition 1.",
        ),
    ),
    Fault(
        "xid-63",
        "Xid 63: a row is to be remapped",
        ("xid",),
        _xid(2, 63, f"{_RAN}Row Remapper: New row (0x0000001234abcd) marked for remapping, reset gpu to activate."),
    ),
    Fault(
        "xid-64",
        "Xid 64: a row could not be remapped",
        ("xid",),
        _xid(2, 64, f"{_RAN}Row Remapper: Unable to mark row for remapping"),
    ),
    Fault(
        "xid-74",
        "Xid 74: an NVLink error",
        ("xid",),
        _xid(4, 74, f"{_RAN}NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
    ),
    Fault(
        "xid-94",
        "Xid 94: a memory error that hit one program",
        ("xid",),
        _xid(5, 94, f"{_RAN}Contained: SM (0x1). RST: No, D-RST: No"),
    ),
    Fault(
        "xid-95",
        "Xid 95: a memory error that may have hit all programs",
        ("xid",),
        _xid(5, 95, f"{_RAN}Uncontained: FBHUB. RST: Yes, D-RST: No"),
    ),
    Fault(
        "xid-119",
        "Xid 119: the GPU's own processor does not answer",
        ("xid",),
        _xid(
            6,
            119,
            f"{_RAN}Timeout after 6s of waiting for RPC response from GPU6 GSP! Expected function 76 "
            "(GSP_RM_CONTROL) (0x20802068 0x4).",
        ),
    ),
    Fault(
        "xid-154",
        "Xid 154: the driver itself says what to do",
        ("xid",),
        _xid(0, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    ),
    Fault(
        "xid-unknown",
        "an Xid that no catalogue has",
        ("xid",),
        _xid(7, 887, f"{_RAN}engine reports an unnamed condition"),
    ),
    Fault("sxid", "a fatal SXid of an NVSwitch", ("sxid",), logged(_sxid)),
    Fault(
        "machine-check",
        "the processor reports a memory error that it could not correct",
        ("machine_check",),
        _said("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 17: be00000001010135"),
    ),
    Fault(
        "oom",
        "the kernel killed a process for want of memory",
        ("oom",),
        _said(
            "Out of memory: Killed process 48120 (python3) total-vm:981234567kB, anon-rss:612345678kB, "
            "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1204kB oom_score_adj:0"
        ),
    ),
    Fault(
        "segfault",
        "NCCL's library crashed",
        ("segfault",),
        _said(
            "python3[48121]: segfault at 8 ip 00007f21ac1b2c40 sp 00007f1f0b7fd9b0 error 4 in "
            "libnccl.so.2[7f21a8000000+4a00000]"
        ),
    ),
    Fault(
        "pcie-limited",
        "an adapter says that its slot is slow",
        ("pcie_limited",),
        _said(
            "mlx5_core 0000:4b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at "
            "0000:4a:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)"
        ),
    ),
)
