"""A login whose start file never ends: nothing of it stays behind when nodectl gives the command up, or ends itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from nodectl.model.host import Host
from nodectl.transport.inventory.read import Inventory
from nodectl.transport.router import open_transport
from tests.conftest import LabUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

_MAKE = """\
useradd -m -s /bin/bash slow-ops && install -d -o slow-ops -m 700 ~slow-ops/.ssh
install -o slow-ops -m 600 ~/.ssh/authorized_keys ~slow-ops/.ssh/
echo 'sleep 31415' > ~slow-ops/.bashrc; chown slow-ops ~slow-ops/.bashrc
"""


@dataclass(frozen=True)
class Login:
    """Of no root: sshd sends signals to the processes of such a login."""

    lab: LabUnderTest
    host: Host

    def running(self) -> list[str]:
        """Its processes there, but for sshd's own."""
        listed = self.lab.ssh(self.host.name, "ps -u slow-ops -o args= || true")
        return [line for line in listed.splitlines() if "sshd" not in line]

    def wait(self, *, there: bool) -> None:
        """Until its start file runs there, or no longer."""
        deadline = time.monotonic() + 60
        while bool(self.running()) is not there:
            assert time.monotonic() < deadline, self.running()
            time.sleep(0.2)


@pytest.fixture
def login(lab4: LabUnderTest) -> Iterator[Login]:
    name = lab4.hosts[1]
    lab4.ssh(name, _MAKE)
    (host,) = Inventory.read([lab4.inventory]).hosts(name)
    yield Login(lab4, replace(host, user="slow-ops"))
    lab4.ssh(name, "pkill -KILL -u slow-ops; userdel -r slow-ops")


def test_it_ends_with_nodectl(login: Login) -> None:
    transport = open_transport()
    words = {"timeout_s": 600, "stdin": b"echo ran\n"}
    asking = threading.Thread(target=transport.run, args=(login.host, ["sh", "-s"]), kwargs=words, daemon=True)
    asking.start()
    login.wait(there=True)
    transport.close()
    login.wait(there=False)
    asking.join(30)
    assert not asking.is_alive()
