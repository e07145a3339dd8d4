"""How hosts are reached is taken over, and no secret is."""

import os
import pwd
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from nodectl.common.access import Access
from nodectl.doctor.hosts import _sudo
from nodectl.doctor.propose import connection_variables, secrets
from nodectl.model.host import Host
from nodectl.transport.inventory import read_inventory
from nodectl.transport.inventory.read import vaulted

INVENTORY = """\
all:
  hosts:
    node01:
      addr: 10.0.0.9
      ansible_host: "{{ addr }}"
      ansible_port: 2222
      ansible_ssh_common_args: -o ProxyJump=gate
      ansible_password: hunter2
      ansible_become_password: hunter3
      nodectl_stack: cu128
"""


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    """An inventory whose login is vaulted, and the vault's password."""
    secret = VaultSecret(b"pw")
    text = VaultLib([("default", secret)]).encrypt(b"ops", secret).decode()
    login = "\n".join(f"        {line}" for line in text.splitlines())
    (tmp_path / "hosts.yml").write_text(f"{INVENTORY}      ansible_user: !vault |\n{login}\n")
    (tmp_path / "pw").write_text("pw\n")
    return tmp_path / "hosts.yml", tmp_path / "pw"


def test_what_is_rendered_is_written_and_no_secret_is(sources: tuple[Path, Path]) -> None:
    inventory, password = sources
    (host,) = read_inventory([str(inventory)], Access(vault_password_file=(str(password),))).hosts()
    assert host.user == "ops" and vaulted(host) == {"ansible_user"}
    everywhere = {name: value for name, value in host.variables.items() if name == "ansible_ssh_args"}
    assert connection_variables(host, everywhere, vaulted(host)) == {
        "ansible_host": "10.0.0.9",
        "ansible_port": 2222,
        "ansible_ssh_common_args": "-o ProxyJump=gate",
    }
    assert set(secrets(host, vaulted(host))) == {"ansible_password", "ansible_become_password", "ansible_user"}


def test_the_login_of_this_machine_is_known() -> None:
    host = Host(name="localhost", address="localhost", connection="local")
    remedies = [finding.remedy for finding in _sudo(host, None, password_given=False) if "--user" in finding.remedy]
    assert remedies and all(f"--user {pwd.getpwuid(os.geteuid()).pw_name}" in remedy for remedy in remedies)
