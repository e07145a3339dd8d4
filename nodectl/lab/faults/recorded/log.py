"""Recorded faults that only the kernel's log tells of: Xid, SXid, machine checks, killed and crashed processes."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault, Outputs
from nodectl.lab.faults.editing import bus_of, logged, recorded, says

_BY_PYTHON = "pid=19174, name=python3, "


def _xid(code: int, about: str, gpu: int, message: str) -> Fault:
    """The driver's message `code` about the GPU of that number."""
    return recorded(f"xid-{code}", f"Xid {code}: {about}", "xid", _xid_line(code, gpu, message))


def _xid_line(code: int, gpu: int, message: str) -> Edit:
    return logged(lambda outputs: f"NVRM: Xid (PCI:{bus_of(outputs, gpu)}): {code}, {message}")


def _bare(outputs: Outputs, code: int) -> str:
    return f"NVRM: Xid (PCI:{bus_of(outputs, 4)}): {code}"


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
    _xid(54, "a GPU's power cable is not plugged", 3, "Auxiliary power is not connected to the GPU board"),
    _xid(60, "a video engine failed", 2, f"{_BY_PYTHON}Ch 00000008, SEC2 exception"),
    _xid(61, "the GPU's power controller stopped", 1, f"{_BY_PYTHON}Internal micro-controller breakpoint"),
    _xid(155, "an NVLink error that software defines", 4, "NVLINK: SW defined error on link 3"),
    _xid(163, "power smoothing is off", 5, "power smoothing disengaged"),
    _xid(165, "power smoothing is worn out", 5, "power smoothing lifetime exhausted"),
    _xid(168, "a GPU has less memory than before", 6, "errors in the write protected region"),
    recorded("xid-bare", "an Xid that is no more than its number", "xid", logged(lambda o: _bare(o, 46))),
    recorded(
        "xid-nvlink-bits",
        "an NVLink error whose word is milder than its status bits",
        "xid",
        _xid_line(145, 2, "RLW_REMAP Nonfatal XC0 i0 Link 07 (0x00000004 0x00000040 0x00000000 0x00000000)"),
    ),
    recorded(
        "xid-behind-damage",
        "a GPU is lost, and the lines around say so in pieces",
        "xid",
        logged(lambda o: f"NVRM: Xid (PCI:0000:3f:0\n<4>[1295000.2] {_bare(o, 79)}\n<4>[1295000.3] NVRM: Xid (P"),
    ),
    recorded(
        "log-cut",
        "a line of the kernel's log begins as an Xid and is cut",
        "kernel_log",
        logged(lambda outputs: "NVRM: Xid (PCI:0000:3f:0"),
    ),
    recorded("log-hang", "dmesg does not end in time", "hung", says(("dmesg",), exit_status=124)),
    recorded("log-absent", "dmesg is not installed", "kernel_log", says(("dmesg",), exit_status=127)),
    _line(
        "driver-assert",
        "an assertion of the driver failed",
        "driver_message",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Call timed out [NV_ERR_TIMEOUT] (0x65) @ gpu_vaspace.c:1502",
    ),
    _line(
        "driver-complaint",
        "the driver complains in words that no catalogue has",
        "driver_message",
        "NVRM: GPU 0000:bd:00.0: fatal hardware condition 0x17 in unit 4",
    ),
    _line(
        "driver-error", "a line of the driver has the level of an error", "driver_message", "<3>nvidia-uvm: state 0x7f"
    ),
    _line(
        "sxid-silent",
        "an SXid that does not say how grave it is, and is always fatal by NVIDIA's list",
        "sxid",
        "nvidia-nvswitch1: SXid (PCI:0000:c5:00.0): 23001, ingress SRC-VC buffer overflow",
    ),
    _line(
        "sxid-nonfatal",
        "an SXid that is not fatal",
        "sxid",
        "nvidia-nvswitch1: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error",
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
