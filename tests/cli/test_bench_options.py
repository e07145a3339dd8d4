"""`nodectl bench` before anything is measured: what it takes, what it refuses, and on whose links."""

import json
from pathlib import Path

import pytest

from nodectl.articles.sweep import lab_links
from nodectl.cli.bench import read_counts, read_rates
from nodectl.errors import LabError, UsageError
from nodectl.lab.spec import LabSpec
from nodectl.lab.state import HostRecord, LabFolder, LabState
from nodectl.model.host import Host

MARKED = {"nodectl_lab": True}


def test_lists_of_counts_and_rates_are_read() -> None:
    assert read_counts("8,1, 64,8") == (8, 1, 64)
    assert read_rates("100mbit,2.5g,2.5gbit") == (10**8, 2_500_000_000)


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this operator's labs, with one of two hosts in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = LabFolder(tmp_path / "nodectl" / "lab" / "mine")
    folder.path.mkdir(parents=True)
    hosts = tuple(HostRecord(f"node0{n}", f"10.77.0.{n}", "02:4e:00:00:00:01") for n in (1, 2))
    folder.write(LabState(LabSpec(hosts=2, delay_s=0.01), "10.77.0.0/16", "wire", hosts, complete=True))
    return folder.path


def hosts(*addresses: str, variables: dict[str, object] | None = None) -> list[Host]:
    given = MARKED if variables is None else variables
    return [Host(f"node0{n}", address, variables=given) for n, address in enumerate(addresses, start=1)]


def test_hosts_of_no_lab_have_the_links_that_they_have(labs: Path) -> None:
    with lab_links(hosts("10.77.0.1", "10.77.0.2", variables={}), ()) as links:
        assert links is None


def test_a_lab_that_is_not_up_here_cannot_be_given_a_rate(labs: Path) -> None:
    with pytest.raises(LabError, match="of no lab that is up here"), lab_links(hosts("10.77.0.1", "10.78.0.2"), ()):
        pytest.fail("it went on")


def test_links_carried_by_a_process_keep_their_rate(labs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UsageError, match="--delay or --loss"), lab_links(hosts("10.77.0.1", "10.77.0.2"), ()):
        pytest.fail("it went on")
    assert json.loads((labs / "lab.json").read_text())["spec"]["rate_bits"] == 0
