"""Recorded faults that only the kernel's log tells of: Xid, SXid, machine checks, killed and crashed processes."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault
from nodectl.lab.faults.editing import bus_of, logged, recorded

_BY_PYTHON = "pid=19174, name=python3, "


def _xid(code: int, about: str, gpu: int, message: str) -> Fault:
    """The driver's message `code` about the GPU of that number."""
    return recorded(f"xid-{code}", f"Xid {code}: {about}", "xid", _xid_line(code, gpu, message))


def _xid_line(code: int, gpu: int, message: str) -> Edit:
    return logged(lambda outputs: f"NVRM: Xid (PCI:{bus_of(outputs, gpu)}): {code}, {message}")


def _line(name: str, about: str, check: str, text: str) -> Fault:
    """One line more in the log, found by `check`."""
    return recorded(name, about, check, logged(lambda outputs: text))


FAULTS: tuple[Fault, ...] = (
    _xid(79, "a GPU has fallen off the bus", 3, f"{_BY_PYTHON}GPU has fallen off the bus."),
    _xid(
        48,
        "an ECC error of two bits",
        1,
        f"{_BY_PYTHON}An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
        "partition 2, subpartition 1.",
    ),
    _xid(
        63,
        "a row is to be remapped",
        2,
        f"{_BY_PYTHON}Row Remapper: New row (0x0000001234abcd) marked for remapping, reset gpu to activate.",
    ),
    _xid(64, "a row could not be remapped", 2, f"{_BY_PYTHON}Row Remapper: Unable to mark row for remapping"),
    _xid(
        74,
        "an NVLink error",
        4,
        f"{_BY_PYTHON}NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    ),
    _xid(94, "a memory error that hit one program", 5, f"{_BY_PYTHON}Contained: SM (0x1). RST: No, D-RST: No"),
    _xid(
        95, "a memory error that may have hit all programs", 5, f"{_BY_PYTHON}Uncontained: FBHUB. RST: Yes, D-RST: No"
    ),
    _xid(
        119,
        "the GPU's own processor does not answer",
        6,
        f"{_BY_PYTHON}Timeout after 6s of waiting for RPC response from GPU6 GSP! Expected function 76 "
        "(GSP_RM_CONTROL) (0x20802068 0x4).",
    ),
    _xid(
        154,
        "the driver itself says what to do",
        0,
        "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ),
    recorded(
        "xid-unknown",
        "an Xid that no catalogue has",
        "xid",
        _xid_line(887, 7, f"{_BY_PYTHON}engine reports an unnamed condition"),
    ),
    _line(
        "sxid",
        "a fatal SXid of an NVSwitch",
        "sxid",
        "nvidia-nvswitch2: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    ),
    _line(
        "machine-check",
        "the processor reports a memory error that it could not correct",
        "machine_check",
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 17: be00000001010135",
    ),
    _line(
        "oom",
        "the kernel killed a process for want of memory",
        "oom",
        "Out of memory: Killed process 48120 (python3) total-vm:981234567kB, anon-rss:612345678kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:1204kB oom_score_adj:0",
    ),
    _line(
        "segfault",
        "NCCL's library crashed",
        "segfault",
        "python3[48121]: segfault at 8 ip 00007f21ac1b2c40 sp 00007f1f0b7fd9b0 error 4 in "
        "libnccl.so.2[7f21a8000000+4a00000]",
    ),
    _line(
        "pcie-limited",
        "an adapter says that its slot is slow",
        "pcie_limited",
        "mlx5_core 0000:4b:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at "
        "0000:4a:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
    ),
)
