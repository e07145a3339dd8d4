"""Lines that GPUs and hosts of one kind print alike are read once: what is read does not depend on what came before."""

import re

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.linux import lspci_acs
from nodectl.parsers.linux.lspci_acs import parse_lspci_acs
from nodectl.parsers.nvidia.smi_nvlink import parse_nvidia_smi_nvlink
from nodectl.parsers.nvidia.smi_q import text as smi_text
from nodectl.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.recordings.fleet import bundled

REPORT = (bundled()["dgx-a100"] / "node01" / "nvidia-smi-q.out").read_text()
BRIDGES = (bundled()["dgx-a100"] / "node01" / "lspci-acs.out").read_text()
# a line without an indent between the sections: these are then read line by line
BY_LINES = REPORT.replace("    Product Name", "WARNING: a line of its own\n    Product Name")
LINKS = (bundled()["dgx-a100"] / "node01" / "nvidia-smi-nvlink-errors.out").read_text()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_text, "_known", smi_text._Known())


def test_the_same_report_twice_adds_nothing_to_what_is_known() -> None:
    first = parse_nvidia_smi_q(BY_LINES)
    number = smi_text._known.number
    assert parse_nvidia_smi_q(BY_LINES) == first
    assert smi_text._known.number == number > 0
    # eight GPUs print a few hundred different lines each at most, not all of theirs
    assert number < len(REPORT.splitlines()) / 2


def test_a_report_is_read_alike_after_another_one() -> None:
    shuffled = re.sub(r"(Persistence Mode +: )\w+", r"\1Changed", REPORT)
    alone = parse_nvidia_smi_q(REPORT)
    with pytest.raises(ParseError, match="line "):
        parse_nvidia_smi_q(shuffled)
    assert parse_nvidia_smi_q(REPORT) == alone


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_text, "_MOST_KNOWN", 100)
    first = parse_nvidia_smi_q(BY_LINES)
    for _ in range(3):
        assert parse_nvidia_smi_q(BY_LINES) == first
    assert smi_text._known.number < 2 * len(REPORT.splitlines())


def test_a_row_of_a_link_that_cannot_be_read_is_named_by_its_own_line() -> None:
    parse_nvidia_smi_nvlink(LINKS)
    lines = LINKS.splitlines()
    number = next(n for n, line in enumerate(lines) if n > len(lines) // 2 and "Replay" in line)
    lines[number] = re.sub(r"\d+$", "many", lines[number])
    with pytest.raises(ParseError, match=f"line {number + 1}:.*no number"):
        parse_nvidia_smi_nvlink("\n".join(lines))


@pytest.mark.parametrize("recording", sorted(bundled()))
def test_section_by_section_and_line_by_line_are_alike(recording: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = (bundled()[recording] / "node01" / "nvidia-smi-q.out").read_text()
    assert smi_text.read_known(report) is not None
    by_sections = parse_nvidia_smi_q(report)
    monkeypatch.setattr(smi_text, "read_known", lambda text: None)
    assert parse_nvidia_smi_q(report) == by_sections


def test_sections_of_another_host_are_known() -> None:
    parse_nvidia_smi_q(REPORT)
    before = smi_text._known_section.cache_info().misses
    parse_nvidia_smi_q(re.sub(r"(GPU UUID +: GPU-)\w{8}", r"\g<1>00000000", REPORT))
    # the UUID of eight GPUs, and nothing else
    assert smi_text._known_section.cache_info().misses - before <= 8


@pytest.mark.parametrize("recording", sorted(bundled()))
def test_devices_of_lspci_are_read_alike_one_by_one(recording: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (bundled()[recording] / "node01" / "lspci-acs.out").read_text()
    assert lspci_acs._alike(text)
    by_paragraphs = parse_lspci_acs(text)
    monkeypatch.setattr(lspci_acs, "_alike", lambda text: None)
    assert parse_lspci_acs(text) == by_paragraphs


def test_devices_of_another_host_are_known() -> None:
    parse_lspci_acs(BRIDGES)
    before = lspci_acs._known.cache_info().misses
    parse_lspci_acs(BRIDGES)
    assert lspci_acs._known.cache_info().misses == before


def test_a_garbled_device_is_named_by_its_own_line() -> None:
    lines = BRIDGES.splitlines()
    number = next(n for n, line in enumerate(lines) if n > len(lines) // 2 and "LnkSta:" in line)
    lines[number] = "\t\tLnkSta:\tSpeed"
    with pytest.raises(ParseError, match=f"line {number + 1}:.*speed and width"):
        parse_lspci_acs("\n".join(lines))
