"""The journal survives a round trip, and a process is never taken for another."""

import os
import subprocess
from pathlib import Path

import pytest

from nodectl.errors import LabError, UsageError
from nodectl.lab.spec import LabSpec
from nodectl.lab.state import FaultRecord, HostRecord, LabFolder, LabState, Process

STATE = LabState(
    spec=LabSpec(hosts=2, rate_bits=10**9, delay_s=0.01, loss=0.001, disk_bytes=2**30),
    subnet="10.77.0.0/16",
    link="wire",
    hosts=(HostRecord("node01", "10.77.0.1", "02:00", Process(10, 20)), HostRecord("node02", "10.77.0.2", "02:01")),
    wire=Process(30, 40),
    faults=(FaultRecord("link-down", "node02"),),
    former_loops=(0, 8),
    complete=True,
)


def test_the_journal_gives_back_what_was_written(tmp_path: Path) -> None:
    folder = LabFolder(tmp_path)
    assert folder.read() is None
    folder.write(STATE)
    assert folder.read() == STATE


@pytest.mark.parametrize("text", ["{", "[]", '{"spec": {}}', '{"spec": {"colour": 1}}'])
def test_a_damaged_journal_is_an_error_that_names_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text)
    with pytest.raises(LabError) as damaged:
        LabFolder(tmp_path).read()
    assert "lab down" in damaged.value.remedy


def test_a_process_is_known_by_its_start_too() -> None:
    own = Process.of(os.getpid())
    assert own.alive
    assert not Process(own.pid, own.started + 1).alive


def test_a_process_that_has_ended_is_not_alive_even_as_a_zombie() -> None:
    child = subprocess.Popen(["sleep", "60"])
    seen = Process.of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not seen.alive
    child.wait()
    with pytest.raises(ProcessLookupError):
        Process.of(child.pid)


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "-x", "x" * 40])
def test_a_labs_name_is_no_path(name: str) -> None:
    with pytest.raises(UsageError):
        LabFolder.named(name)


def test_a_lab_that_is_not_up_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(LabError) as alone:
        LabFolder(tmp_path / "lab").running()
    assert alone.value.remedy == "run `nodectl lab up --name lab`"
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        LabFolder(tmp_path / name).write(STATE)
    with pytest.raises(LabError, match="the lab 'lab' is not up") as others:
        LabFolder(tmp_path / "lab").running()
    assert others.value.remedy == "run `nodectl lab up --name lab`, or name one that is there: --name a or b"
