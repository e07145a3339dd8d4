"""`nodectl sudoers`: visudo accepts it, and a login that has only this can look, and nothing else."""

import shutil
import subprocess

import pytest

from nodectl.errors import UsageError
from nodectl.facts.catalogue import commands_for, root_commands
from nodectl.model.host import Host
from nodectl.provision.sudoers import sudoers
from nodectl.recordings.collect import script
from tests.conftest import LabUnderTest


@pytest.mark.parametrize("provisioning", ["none", "password", "nopasswd"])
@pytest.mark.parametrize("name", ["op", "gpu.admin_1-x", "%ops"])
def test_visudo_accepts_it(name: str, provisioning: str) -> None:
    if not shutil.which("visudo"):
        pytest.skip("no visudo here: package sudo")
    text = sudoers(name, provisioning)
    done = subprocess.run(["visudo", "-cf", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = [line for line in text.splitlines() if line and not line.startswith(("#", "Cmnd_Alias"))]
    assert len(rules) == (1 if provisioning == "none" else 2)
    assert rules[-1] == f"{name} ALL=(root) NOPASSWD: NODECTL_LOOK", "sudo takes the last line that fits"


@pytest.mark.parametrize("name", ["", "op ALL=(ALL) ALL #", "a\nb", "ALL,x", "!op", "+net", "a=b"])
def test_a_name_that_sudoers_would_take_for_syntax_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a login"):
        sudoers(name)


@pytest.mark.parametrize("name", ["ALL", "ADMINS"])
def test_a_name_that_stands_for_everybody_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="as an alias"):
        sudoers(name)


def test_it_holds_all_that_the_collector_runs_as_root_and_nothing_else() -> None:
    commands = commands_for(Host("n1", "192.0.2.1"))
    rooted = {command.argv for command in commands if command.root} | {argv for each in commands for argv in each.sudo}
    (line,) = [line for line in sudoers("op").splitlines() if line.startswith("Cmnd_Alias")]
    allowed = {tuple(each.rpartition("bin/")[2].split()) for each in line.partition(" = ")[2].split(", ")}
    assert allowed == {argv if argv[1:] else (*argv, '""') for argv in rooted}


# an empty line and the head of the answer, then what gzip packed
UNPACK = " | tail -n +3 | gunzip"


@pytest.mark.lab
def test_a_login_with_only_this_can_look_and_nothing_else(lab4: LabUnderTest) -> None:
    host = lab4.hosts[2]
    if "sudo" not in lab4.ssh(host, "command -v sudo"):
        pytest.skip("no sudo on the lab's hosts: install the package sudo on this machine")
    # a stand-in for a kernel log that a namespace may not read: what matters here is whom sudo lets run it
    look = script(root_commands(), "5e" * 16).decode()
    try:
        lab4.ssh(host, "useradd --create-home op && install -m 0440 /dev/null /etc/sudoers.d/nodectl")
        lab4.ssh(host, f"cat >/etc/sudoers.d/nodectl <<'END'\n{sudoers('op')}END")
        lab4.ssh(host, "cp /usr/bin/dmesg /root/dmesg.kept; printf '#!/bin/sh\\nid -un\\n' >/usr/bin/dmesg")
        lab4.ssh(host, f"cat >/home/op/look <<'END'\n{look}\nEND")
        assert "out dmesg\nroot\n" in lab4.ssh(host, f"runuser -l op -c 'sh /home/op/look{UNPACK}'")
        assert "out dmesg\nroot\n" in lab4.ssh(host, f"sh /home/op/look{UNPACK}"), "root needs no sudo"
        lab4.ssh(host, "rm /etc/sudoers.d/nodectl")
        assert "sudo: a password is required" in lab4.ssh(host, f"runuser -l op -c 'sh /home/op/look{UNPACK}'")
        lab4.ssh(host, f"cat >/etc/sudoers.d/nodectl <<'END'\n{sudoers('op')}END")
        for refused in ("dmesg -C", "id", "sh", "lspci", "cat /etc/shadow"):
            said = lab4.ssh(host, f"runuser -l op -c 'sudo -n -- {refused}'")
            assert "password is required" in said, f"{refused}: {said}"
    finally:
        lab4.ssh(host, "mv /root/dmesg.kept /usr/bin/dmesg; userdel --remove op; rm -f /etc/sudoers.d/nodectl")
