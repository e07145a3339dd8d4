"""What only root sees: the kernel's log and PCI Express, and what it means that it was refused."""

from nodectl.facts.base import read_fact
from nodectl.facts.catalogue import root_commands
from nodectl.facts.kernel import KERNEL_EVENTS_FACT
from nodectl.facts.parsers.linux.dmesg import Dmesg
from nodectl.facts.parsers.linux.lspci_acs import PcieBridge
from nodectl.model.facts import Unread
from nodectl.model.recording import Entry, Recording
from tests.facts.parsers.tool_outputs import recorded_text
from tests.facts.recorded import fact

LSPCI = recorded_text("root-facts-lspci.txt")
TREE = """\
../../../devices/pci0000:00/0000:00:01.1
../../../devices/pci0000:00/0000:00:01.1/0000:02:00.0
../../../devices/pci0000:00/0000:00:01.1/0000:02:00.0/0000:03:00.0
"""
XID = "[ 123.4] NVRM: Xid (PCI:0000:41:00): 79, pid=1234, GPU has fallen off the bus."


FALLEN = """\
0000:0f:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev ff) (prog-if ff)
\t!!! Unknown header type 7f
\tKernel driver in use: nvidia

"""


def test_a_device_that_has_fallen_off_the_bus_is_gone() -> None:
    found = fact("pcie", lspci_acs=LSPCI + FALLEN)
    assert [(link.address, link.kind) for link in found.gone] == [("0000:0f:00.0", "3D controller")]
    assert len(found.links) == 3


def test_lspci_that_is_cut_is_no_observation() -> None:
    for end in (len(LSPCI) - 1, LSPCI.index("\t\tACSCtl:\tSrcValid-"), LSPCI.index("0000:03:00.0")):
        cut = fact("pcie", lspci_acs=LSPCI[:end], pci_tree=TREE)
        assert isinstance(cut, Unread) and cut.garbled and "is cut" in cut.reason


def test_bridges_links_and_the_tree() -> None:
    found = fact("pcie", lspci_acs=LSPCI, cpuinfo_flags="flags\t: fpu hypervisor sse\n", pci_tree=TREE)
    assert found.virtual is True
    assert [(bridge.address, bridge.redirects) for bridge in found.bridges] == [
        ("0000:00:01.1", True),
        ("0000:02:00.0", False),
    ]
    assert isinstance(found.bridges[0], PcieBridge)
    card = found.links[-1]
    assert (card.address, card.speed_gt_s, card.speed_max_gt_s, card.width, card.width_max) == (
        "0000:03:00.0",
        8,
        16,
        8,
        16,
    )
    assert found.above("0000:03:00.0") == ("0000:02:00.0", "0000:00:01.1")
    assert found.above("0000:FF:00.0") == ()
    bare = fact("pcie", lspci_acs=LSPCI, cpuinfo_flags="flags\t: fpu sse\n", pci_tree=3)
    assert (bare.virtual, bare.parents) == (False, {})


def test_events_of_the_log() -> None:
    (event,) = fact("kernel_events", dmesg=f"[ 1.0] boot\n{XID}\n").events
    assert (event.kind, event.code, event.pid) == ("xid", 79, 1234)
    for text in ("", "\n", f"<13>{XID}\n"):
        empty = fact("kernel_events", dmesg=text)
        assert isinstance(empty, Unread) and empty.garbled and "the kernel's log is empty" in empty.reason


def test_of_a_log_that_is_longer_than_what_is_kept_the_part_is_read() -> None:
    text = f"<6>[ 1.0] boot\n<3>{XID}\n<6>[ 124.0] cut wit"
    entries = {"dmesg": Entry("dmesg", ("dmesg", "-r"), None, text, "", 0.1, cut=True)}
    found = read_fact(KERNEL_EVENTS_FACT, Recording("node01", entries))
    assert isinstance(found, Dmesg) and found.is_part and [event.code for event in found.events] == [79]


def test_a_refusal_names_the_line_and_a_missing_tool_is_absent() -> None:
    argv = {command.key: " ".join(command.argv) for command in root_commands()}
    for subject, key in (("kernel_events", "dmesg"), ("pcie", "lspci-acs")):
        refused = fact(subject, **{key: (1, "", "sudo: a password is required\n")})
        assert refused.kind == "unknown" and argv[key] in refused.reason
        assert "wants a password" in refused.reason and "nodectl sudoers" in refused.reason
        alone = fact(subject, **{key: (1, "", "sudo: not installed\n")})
        assert "not installed" in alone.reason and "password" not in alone.reason
        assert fact(subject, **{key: 127}).kind == "absent"
        assert fact(subject, **{key: (1, "", "read kernel buffer failed\n")}).kind == "unknown"
