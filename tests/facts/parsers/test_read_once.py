"""Lines that GPUs and hosts of one kind print alike are read once: what is read does not depend on what came before."""

import re

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.lspci_acs import parse_lspci_acs
from nodectl.facts.parsers.nvidia.smi_nvlink import parse_nvidia_smi_nvlink
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.recordings.folder import bundled

REPORT = (bundled()["dgx-a100"] / "node01" / "nvidia-smi-q.out").read_text()
BRIDGES = (bundled()["dgx-a100"] / "node01" / "lspci-acs.out").read_text()
LINKS = (bundled()["dgx-a100"] / "node01" / "nvidia-smi-nvlink-errors.out").read_text()


def test_a_report_is_read_alike_after_another_one() -> None:
    shuffled = re.sub(r"(Persistence Mode +: )\w+", r"\1Changed", REPORT)
    alone = parse_nvidia_smi_q(REPORT)
    with pytest.raises(ParseError, match="line "):
        parse_nvidia_smi_q(shuffled)
    assert parse_nvidia_smi_q(REPORT) == alone


def test_a_row_of_a_link_that_cannot_be_read_is_named_by_its_own_line() -> None:
    parse_nvidia_smi_nvlink(LINKS)
    lines = LINKS.splitlines()
    number = next(n for n, line in enumerate(lines) if n > len(lines) // 2 and "Replay" in line)
    lines[number] = re.sub(r"\d+$", "many", lines[number])
    with pytest.raises(ParseError, match=f"line {number + 1}:.*no number"):
        parse_nvidia_smi_nvlink("\n".join(lines))


def test_a_garbled_device_is_named_by_its_own_line() -> None:
    lines = BRIDGES.splitlines()
    number = next(n for n, line in enumerate(lines) if n > len(lines) // 2 and "LnkSta:" in line)
    lines[number] = "\t\tLnkSta:\tSpeed"
    with pytest.raises(ParseError, match=f"line {number + 1}:.*speed and width"):
        parse_lspci_acs("\n".join(lines))
