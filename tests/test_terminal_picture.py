"""The README's picture: what it may hold, and that a terminal's lines are broken as a terminal breaks them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.terminal_picture import COMMANDS, PICTURE, PictureError, refuse_private

_SVG = "{http://www.w3.org/2000/svg}"


def lines_of(svg: str) -> list[str]:
    """The texts of the terminal, those at one height together."""
    rows: dict[float, str] = {}
    for text in ElementTree.fromstring(svg).iter(f"{_SVG}text"):  # noqa: S314  # our own
        if text.get("clip-path"):
            height = float(text.get("y", ""))
            rows[height] = rows.get(height, "") + (text.text or "").replace("\xa0", " ")
    return [rows[height].rstrip() for height in sorted(rows)]


def test_the_picture_asks_nobody_for_anything_and_names_no_machine() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert len(svg) < 100_000
    assert "@font-face" not in svg and "url(h" not in svg and "@import" not in svg
    assert re.findall(r'https?://[^"]*', svg) == ["http://www.w3.org/2000/svg"]
    lines = lines_of(svg)
    assert [line for line in lines if line.startswith("$ ")] == [f"$ {command}" for command in COMMANDS]
    assert not re.search(r"/(tmp|home|root|work)/", svg)
    assert any(line.startswith("FAILED  node02") for line in lines)
    assert any(line.startswith("failed  tcp  node04: receives slowly") for line in lines)
    assert "recorded: node[01-04] from dgx-a100" in lines


@pytest.mark.parametrize("text", [f"in {Path.home()}/x", "10 %\r20 %", "\x1b[2Aup"])
def test_what_is_private_or_moves_is_refused(text: str) -> None:
    with pytest.raises(PictureError):
        refuse_private(text)
    refuse_private("\x1b[1;31mFAILED\x1b[0m node02")
