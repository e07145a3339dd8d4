"""An inventory that another process reads says what one says that is read here, errors and templates too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from nodectl.common.access import Access
from nodectl.errors import InventoryError
from nodectl.inventory import read_inventory
from nodectl.inventory.apart import InventoryApart

T = TypeVar("T")
HOSTS = """
all:
  children:
    gpu:
      hosts:
        node01: {ansible_host: 10.0.0.1, ansible_port: 2222, rack: 1}
        node02: {ansible_host: "10.0.{{ third }}.2", ansible_connection: local}
        node03:
      vars:
        third: 7
        lists: [1, "two", {three: 3.5}]
        yes_or_no: true
        nothing:
        rendered: "rack {{ rack | default('none') }} of {{ inventory_hostname }}"
        broken: "{{ nowhere }}"
"""


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "hosts.yml"
    path.write_text(HOSTS)
    return str(path)


def within(seconds: float, look: Callable[[], T]) -> T:
    """What `look` says once it is true, or when the time is over."""
    ends_s = time.monotonic() + seconds
    while not (said := look()) and time.monotonic() < ends_s:
        time.sleep(0.05)
    return said


def _is_gone(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_is_what_is_read_here(hosts: str) -> None:
    apart, here = InventoryApart([hosts], Access(), "gpu:!node03"), read_inventory([hosts])
    try:
        assert apart.hosts("gpu:!node03") == here.hosts("gpu:!node03")
        for one, other in zip(apart.hosts("gpu:!node03"), here.hosts("gpu:!node03"), strict=True):
            names = set(other.variables) - {"broken"}
            assert set(one.variables) == set(other.variables)
            assert len(one.variables) == len(other.variables)
            assert {name: one.variables[name] for name in names} == {name: other.variables[name] for name in names}
            assert one.variables["rendered"] == f"rack {one.variables.get('rack', 'none')} of {one.name}"
            assert "absent" not in one.variables
        assert apart.sources == here.sources
        assert apart.hosts(None) == here.hosts(None)
    finally:
        apart.close()


def test_a_template_that_fails_says_what_it_says_here(hosts: str) -> None:
    apart = InventoryApart([hosts], Access(), None)
    try:
        with pytest.raises(InventoryError) as here:
            read_inventory([hosts]).hosts()[0].variables["broken"]
        for _ in range(2):
            with pytest.raises(InventoryError) as there:
                apart.hosts()[0].variables["broken"]
            assert (there.value.message, there.value.remedy) == (here.value.message, here.value.remedy)
    finally:
        apart.close()


@pytest.mark.parametrize("limit", [None, "nobody"])
def test_errors_are_those_of_here(tmp_path: Path, hosts: str, limit: str | None) -> None:
    source = hosts if limit else str(tmp_path / "absent.yml")
    apart = InventoryApart([source], Access(), limit)
    with pytest.raises(InventoryError) as here:
        read_inventory([source]).hosts(limit)
    with pytest.raises(InventoryError) as there:
        apart.hosts(limit)
    assert (there.value.message, there.value.remedy) == (here.value.message, here.value.remedy)
    apart.close()


def test_it_ends_at_once_where_no_template_is_left(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[gpu]\nnode01 ansible_host=10.0.0.1\n")
    apart = InventoryApart([str(path)], Access(), None)
    pid = apart._pid
    assert apart.hosts()[0].address == "10.0.0.1"
    assert _is_gone(pid)
    assert apart.hosts()[0].variables["ansible_host"] == "10.0.0.1"


def test_nobody_is_left_when_it_is_closed_before_it_is_read(tmp_path: Path) -> None:
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid\nexec sleep 600\n")
    script.chmod(0o755)
    apart = InventoryApart([str(script)], Access(), None)
    pid = apart._pid
    pids = [pid, int(within(30, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))]
    apart.close()
    assert within(10, lambda: all(map(_is_gone, pids)))


def test_without_the_process_values_are_read_here(hosts: str) -> None:
    apart = InventoryApart([hosts], Access(), None)
    first = apart.hosts()[0]
    os.kill(apart._pid, signal.SIGKILL)
    os.waitpid(apart._pid, 0)
    assert first.variables["rack"] == 1
    with pytest.raises(InventoryError):
        first.variables["broken"]
    apart.close()


def test_an_end_before_the_answer_is_made_up_for(hosts: str) -> None:
    apart = InventoryApart([hosts], Access(), None)
    os.kill(apart._pid, signal.SIGKILL)
    assert apart.hosts() == read_inventory([hosts]).hosts()
    apart.close()
