"""Another rate for a lab's links: the former one comes back also where a change has broken off half-way."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.errors import LabError
from nodectl.lab import network
from nodectl.lab.spec import LabSpec
from nodectl.lab.state import FaultRecord, LabFolder, LabState

BEFORE, NEW = 10**9, 10**8


class Links:
    """Of a lab: what `tc` has put on them, and the change at which it fails."""

    def __init__(self, broken: int | None = None) -> None:
        self.put_on: list[int] = []
        self.broken = broken

    def set_rate(self, folder: LabFolder, rate_bits: int) -> None:
        self.put_on.append(rate_bits)
        if len(self.put_on) == self.broken:
            raise LabError("the links cannot be shaped")
        folder.write(replace(folder.running(), spec=LabSpec(rate_bits=rate_bits)))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[LabFolder]:
    path = tmp_path / "lab"
    path.mkdir()
    made = LabFolder(path)
    made.write(LabState(LabSpec(rate_bits=BEFORE), "192.0.2.0/24", "veth", complete=True))
    yield made


def test_the_former_rate_comes_back(monkeypatch: pytest.MonkeyPatch, folder: LabFolder) -> None:
    links = Links()
    monkeypatch.setattr(network, "set_rate", links.set_rate)
    with network.shaping(folder) as put_on:
        put_on(NEW)
    assert links.put_on == [NEW, BEFORE] and folder.running().spec.rate_bits == BEFORE


def test_a_change_that_failed_half_way_is_undone(monkeypatch: pytest.MonkeyPatch, folder: LabFolder) -> None:
    # some links have the new rate then, and the journal still tells the former one
    links = Links(broken=1)
    monkeypatch.setattr(network, "set_rate", links.set_rate)
    with pytest.raises(LabError, match="cannot be shaped"), network.shaping(folder) as put_on:
        put_on(NEW)
    assert links.put_on == [NEW, BEFORE]


def test_what_cannot_be_put_back_is_told_with_the_way_to_do_it(
    monkeypatch: pytest.MonkeyPatch, folder: LabFolder
) -> None:
    links = Links()
    real = network.set_rate
    monkeypatch.setattr(network, "set_rate", links.set_rate)
    with pytest.raises(LabError) as told, network.shaping(folder) as put_on:
        put_on(NEW)
        # somebody breaks the lab meanwhile
        monkeypatch.setattr(network, "set_rate", real)
        folder.write(replace(folder.running(), faults=(FaultRecord("slow-link", "node03"),)))
    assert "keep 100mbit" in told.value.message and "node03: slow-link" in told.value.message
    assert "`nodectl lab heal --name lab`" in told.value.remedy
    assert "`nodectl lab down --name lab`" in told.value.remedy
