"""Lines that GPUs and hosts of one kind print alike are read once: what is read does not depend on what came before."""

import re

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.nvidia.smi_nvlink import parse_nvidia_smi_nvlink
from nodectl.parsers.nvidia.smi_q import text as smi_text
from nodectl.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.recordings.fleet import bundled

REPORT = (bundled()["dgx-a100"] / "node01" / "nvidia-smi-q.out").read_text()
LINKS = (bundled()["dgx-a100"] / "node01" / "nvidia-smi-nvlink-errors.out").read_text()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_text, "_known", smi_text._Known())


def test_the_same_report_twice_adds_nothing_to_what_is_known() -> None:
    first = parse_nvidia_smi_q(REPORT)
    number = smi_text._known.number
    assert parse_nvidia_smi_q(REPORT) == first
    assert smi_text._known.number == number
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
    first = parse_nvidia_smi_q(REPORT)
    for _ in range(3):
        assert parse_nvidia_smi_q(REPORT) == first
    assert smi_text._known.number < 2 * len(REPORT.splitlines())


def test_a_row_of_a_link_that_cannot_be_read_is_named_by_its_own_line() -> None:
    parse_nvidia_smi_nvlink(LINKS)
    lines = LINKS.splitlines()
    number = next(n for n, line in enumerate(lines) if n > len(lines) // 2 and "Replay" in line)
    lines[number] = re.sub(r"\d+$", "many", lines[number])
    with pytest.raises(ParseError, match=f"line {number + 1}:.*no number"):
        parse_nvidia_smi_nvlink("\n".join(lines))
