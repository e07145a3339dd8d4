"""The lab's wheels: what a host names beside the lab's stack comes to lie there, too."""

import json
import sys
from pathlib import Path

import pytest

from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Stack
from nodectl.provision import wheels as lab
from tests.roles.wheels import wheel

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The share's folder with one wheel, and an index of the operator's own that has two others; no other is asked."""
    monkeypatch.setattr(lab, "_answers", lambda _: False)
    index = tmp_path / "index"
    wheel(index, "trainer", "2.0", needs=("helper",))
    wheel(index, "helper", "1.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    folder = tmp_path / "share" / "wheels"
    wheel(folder, "present", "1.0")
    return folder


def test_what_a_host_names_and_what_it_needs_come_to_lie_beside_the_labs_own(house: Path) -> None:
    stack = load_profile("stack", lab.LAB_STACK)
    assert isinstance(stack, Stack)
    said: list[str] = []
    for _ in range(2):  # the second time nothing is asked for
        lab._add_wheels(house, stack, ["present==1.0", "trainer==2.0"], PYTHON, said.append)
    assert sorted(path.name.partition("-")[0] for path in house.glob("*.whl")) == ["helper", "present", "trainer"]
    assert len(said) == 1 and said[0].startswith("downloading ")
    assert json.loads((house / "others.json").read_text()) == [["present==1.0", "trainer==2.0"]]


def test_what_cannot_be_had_is_said_and_left_to_the_hosts(house: Path) -> None:
    stack = load_profile("stack", lab.LAB_STACK)
    assert isinstance(stack, Stack)
    said: list[str] = []
    lab._add_wheels(house, stack, ["trainer==3.0"], PYTHON, said.append)
    assert len(said) == 1 and f"trainer==3.0 for Python {PYTHON}" in said[0] and str(house) in said[0]
    assert [path.name for path in house.iterdir()] == ["present-1.0-py3-none-any.whl"]
