"""lspci's bridges and links: as root, as nobody, with and without domains."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.lspci_acs import AcsBridge, PciLink, parse_lspci_acs
from tests.facts.parsers.tool_outputs import tool_output

ACS_ON = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
ACS_OFF = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
GPU = "00:05.0 3D controller: NVIDIA Corporation X\n\tControl: I/O-\n"


def test_bridges_and_links_as_root() -> None:
    found = parse_lspci_acs(tool_output("lspci-acs", "root.txt"))
    broadcom = "Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030] (rev b0)"
    intel, nvidia = "Intel Corporation Device 352a (rev 04)", "NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"
    assert found.bridges == (
        AcsBridge("0000:00:01.0", "0000:00:01.0", intel, True, ACS_ON, {}),
        AcsBridge("0000:01:00.0", "0000:01:00.0", broadcom, False, ACS_OFF, {}),
    )
    assert found.links == (
        PciLink("0000:00:01.0", "0000:00:01.0", "PCI bridge", intel, 16.0, 32.0, 8, 16, {}),
        PciLink("0000:01:00.0", "0000:01:00.0", "PCI bridge [0604]", broadcom, 32.0, 32.0, 16, 16, {}),
        PciLink("0000:03:00.0", "0000:03:00.0", "3D controller", nvidia, 2.5, 32.0, 4, 16, {}),
    )


def test_what_only_root_may_see_is_unknown_and_not_off() -> None:
    found = parse_lspci_acs(tool_output("lspci-acs", "denied.txt"))
    (bridge,) = found.bridges
    assert (bridge.address, bridge.bus_id) == ("00:01.0", "0000:00:01.0")
    assert (bridge.acs_enabled, bridge.flags, bridge.unavailable) == (None, None, {"acs_enabled": "<access denied>"})
    assert (found.links, found.unavailable) == (None, {"links": "<access denied>"})


@pytest.mark.parametrize(
    ("line", "speed", "width", "refused"),
    [
        ("LnkSta:\tSpeed 8GT/s (downgraded), Width x4 (downgraded)", 8.0, 4, {}),
        ("LnkSta: Speed 5GT/s, Width x2, TrErr- Train- SlotClk+", 5.0, 2, {}),
        ("LnkSta:\tSpeed unknown, Width x0", None, 0, {"speed_gt_s": "unknown"}),
        ("LnkSta:\tSpeed unknown (downgraded), Width x0 (downgraded)", None, 0, {"speed_gt_s": "unknown"}),
        ("LnkSta:\tSpeed 64GT/s (ok), Width x32 (ok)", 64.0, 32, {}),
    ],
)
def test_the_forms_of_a_trained_link(line: str, speed: float | None, width: int, refused: dict[str, str]) -> None:
    found = parse_lspci_acs(f"{GPU}\t\t{line}\n")
    assert found.links is not None
    (link,) = found.links
    assert (link.speed_gt_s, link.width, link.unavailable) == (speed, width, refused)
    assert (link.speed_max_gt_s, link.width_max) == (None, None)


@pytest.mark.parametrize(
    ("device", "is_bridge"),
    [
        ("00:01.0 PCI bridge: A", True),
        ("10000:00:01.0 PCI bridge [0604]: A [8086:1] (prog-if 00 [Normal decode])", True),
        ("00:01.0 Host bridge: A", False),
        ("00:1f.0 ISA bridge: A", False),
        ("00:1f.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch]", False),
    ],
)
def test_which_devices_are_bridges(device: str, is_bridge: bool) -> None:
    bridges = parse_lspci_acs(f"{device}\n\tControl: I/O+\n").bridges
    assert [(each.acs_enabled, each.unavailable) for each in bridges] == ([(None, {})] if is_bridge else [])
    assert all("prog-if" not in each.name for each in bridges)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("bash: lspci: command not found\n", "no PCI device"),
        ("00:00.0 Host bridge: Intel\n00:01.0 PCI bridge: Intel\n", "lspci -vvv"),
        ("00:01.0 PCI bridge: Intel\n\tFlags: bus master, fast devsel\n", "lspci -vvv"),
        ("\t\tACSCtl:\tSrcValid+\n", "no PCI device"),
        (f"{GPU}00:06.0 PCI bri", "line 3: '00:06.0 PCI bri': a device without"),
        (f"{GPU}00:06.", "line 3: '00:06.': a device without"),
        (f"{GPU}\t\tLnkSta:\tSpeed 8GT/s, Wid\n", "line 3: .*a link without its speed and width"),
        (f"{GPU}\t\tLnkCap:\tPort #0, Spe\n", "line 3: .*a link without"),
        (f"{GPU}\t\tACSCtl:\tSrcValid+ TransBl\n", "line 3: .*ACS flags that are cut"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_lspci_acs(text)
