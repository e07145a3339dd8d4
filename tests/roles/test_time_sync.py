"""How chrony comes to read one more file of servers, and a host whose clock is its machine's."""

import os
import re
from collections.abc import Callable

import jinja2
import pytest
import yaml

from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest
from tests.roles.conftest import Play

FILE = "/etc/chrony/sources.d/nodectl.sources"


@pytest.mark.parametrize(
    ("conf", "version", "line"),
    [
        # Ubuntu 20.04: neither confdir nor sourcedir are known
        ("pool ntp.ubuntu.com iburst\n", "3.5", f"include {FILE}"),
        (f"pool ntp.ubuntu.com iburst\ninclude  {FILE}\n", "3.5", ""),
        ("sourcedir /etc/chrony/sources.d\n", "3.5", f"include {FILE}"),
        # Debian 12
        ("confdir /etc/chrony/conf.d\nsourcedir /run/chrony-dhcp\nsourcedir /etc/chrony/sources.d\n", "4.3", ""),
        # RHEL 9
        ("sourcedir /run/chrony-dhcp\n", "4.5", "sourcedir /etc/chrony/sources.d"),
        ("#sourcedir /etc/chrony/sources.d\n", "4.5", "sourcedir /etc/chrony/sources.d"),
    ],
)
def test_chronys_file_gets_the_line_that_its_version_reads(conf: str, version: str, line: str) -> None:
    environment = jinja2.Environment(autoescape=True)
    environment.filters |= {"dirname": os.path.dirname, "regex_escape": re.escape}
    environment.tests["search"] = lambda text, pattern: re.search(pattern, text) is not None
    role = share_dir() / "roles/time_sync"
    tasks = yaml.safe_load((role / "tasks/chrony.yml").read_text())
    (task,) = (task for task in tasks if "ansible.builtin.lineinfile" in task)
    values: dict[str, object] = {"time_sync_file": FILE, "time_sync_version": {"stdout": f"chronyd version {version}"}}
    old = yaml.safe_load((role / "vars/main.yml").read_text())["time_sync_old"]
    values["time_sync_old"] = environment.from_string(old).render(values) == "True"
    values |= {name: environment.from_string(task["vars"][name]).render(values) for name in ("directive", "place")}
    wanted = {
        name: environment.from_string(task["ansible.builtin.lineinfile"][name]).render(values)
        for name in ("line", "regexp")
    }
    present = any(re.search(wanted["regexp"], row) for row in conf.splitlines())
    assert ("" if present else wanted["line"]) == line


@pytest.mark.lab
def test_servers_that_are_not_set_are_said(lab4: LabUnderTest, ansible_play: Callable[..., Play]) -> None:
    roles = [{"role": "nodectl.fleet.time_sync", "time_sync_servers": ["ntp1.example.org"]}]
    play = yaml.safe_dump([{"hosts": "all", "become": True, "gather_facts": False, "roles": roles}])
    done = ansible_play(play, lab4, lab4.hosts[0])
    assert done.changed == 0 and "not settable on this host: it shares the clock of its machine" in done.text
