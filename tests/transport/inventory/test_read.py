"""Any Ansible inventory as hosts; what Ansible only warns of is an error."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ansible import constants

from nodectl.errors import InventoryError
from nodectl.transport.inventory import read, read_inventory
from nodectl.transport.inventory.read import Inventory


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def names(sources: list[str], limit: str | None = None) -> list[str]:
    return [host.name for host in Inventory.read(sources).hosts(limit)]


FLEET = """
[gpu]
gpu[01:12]
[web]
web-a ansible_port=2222 ansible_user=bob
web-b
[all:vars]
ansible_user=root
"""


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("gpu[1:3]", ["gpu02", "gpu03", "gpu04"]),
        ("web*", ["web-a", "web-b"]),
        ("all:!gpu", ["web-a", "web-b"]),
        ("~web-[b-z]", ["web-b"]),
        ("gpu:&gpu01", ["gpu01"]),
        ("web-b:gpu12", ["gpu12", "web-b"]),
    ],
)
def test_limit_is_ansibles_pattern(tmp_path: Path, limit: str, expected: list[str]) -> None:
    assert sorted(names([write(tmp_path / "hosts", FLEET)], limit)) == expected


def test_yaml_folders_group_vars_and_host_vars(tmp_path: Path) -> None:
    write(tmp_path / "inv" / "a.yml", "all:\n  children:\n    gpu:\n      hosts:\n        gpu[1:2]:\n")
    write(tmp_path / "inv" / "b.ini", "[web]\nweb1\n")
    write(tmp_path / "inv" / "group_vars" / "gpu.yml", "colour: blue\nsize: 3\n")
    write(tmp_path / "inv" / "group_vars" / "all.yml", "colour: grey\nnested: {list: [1, '{{ size }}']}\nsize: 1\n")
    write(tmp_path / "inv" / "host_vars" / "gpu2.yml", "size: 5\n")
    write(tmp_path / "inv" / "nodectl.toml", "forks = 8\n")
    write(tmp_path / "inv" / "profiles" / "tuning" / "mine.yml", "sysctl: {}\n")
    write(tmp_path / "inv" / "locks" / "cpu-py311.txt", "torch==2.9.1\n")
    hosts = {host.name: host.variables for host in Inventory.read([str(tmp_path / "inv")]).hosts()}
    assert sorted(hosts) == ["gpu1", "gpu2", "web1"]
    assert [hosts[name]["colour"] for name in sorted(hosts)] == ["blue", "blue", "grey"]
    assert [hosts[name]["size"] for name in sorted(hosts)] == [3, 5, 1]
    assert hosts["gpu2"]["nested"] == {"list": [1, 5]}


def test_a_program_as_inventory(tmp_path: Path) -> None:
    script = Path(write(tmp_path / "dynamic", '#!/bin/sh\necho \'{"gpu": {"hosts": ["d1", "d2"]}}\'\n'))
    script.chmod(0o755)
    assert names([str(script)], "gpu") == ["d1", "d2"]


def test_templates_are_rendered(tmp_path: Path) -> None:
    source = write(
        tmp_path / "hosts",
        "[gpu]\ngpu[07:08]\n[gpu:vars]\nansible_host=10.0.{{ rack }}.{{ inventory_hostname[3:] | int }}\nrack=4\n"
        "ansible_port={{ 2200 + rack | int }}\nansible_ssh_private_key_file={{ hostvars['gpu07'].rack }}.key\n",
    )
    last = Inventory.read([source]).hosts()[1]
    assert (last.address, last.port, last.variables["ansible_ssh_private_key_file"]) == ("10.0.4.8", 2204, "4.key")
    assert type(last.address) is str


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a ansible_host='{{ nowhere }}'\n", "nowhere"),
        ("a ansible_port=ssh\n", "ansible_port"),
        ("a\0b\n", "is no text"),
        ("a ansible_ssh_extra_args='-o User=\0'\n", "null byte"),
        ("a ansible_connection=winrm\n", "winrm"),
        ("a ansible_ssh_extra_args='-o BindInterface=x'\n", "bindinterface"),
    ],
)
def test_variables_that_cannot_be_used(tmp_path: Path, text: str, named: str) -> None:
    inventory = Inventory.read([write(tmp_path / "hosts", text)])
    with pytest.raises(InventoryError, match=named) as caught:
        inventory.hosts()
    assert "a" in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("hosts.yml", "all:\n  hosts:\n    a:\n   b: [\n", ":4"),
        ("hosts.yml", "all:\n  hosts: {a: {x: 'open}}\n", ":3"),
        ("hosts", "[gpu]\na\nb c d\n", ": Failed to parse inventory: Expected key=value"),
        ("hosts", "a\n\n[gpu:wars]\n", ": Failed to parse inventory: Section [gpu:wars]"),
    ],
)
def test_syntax_errors_name_the_file_and_the_place(tmp_path: Path, name: str, text: str, named: str) -> None:
    source = write(tmp_path / name, text)
    with pytest.raises(InventoryError) as caught:
        Inventory.read([source])
    assert f"{source}{named}" in caught.value.message
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("text", "cause", "remedy"),
    [
        ("plugin: netbox.netbox.nb_inventory\n", "netbox.netbox.nb_inventory", "ansible-galaxy collection install"),
        ("plugin: ansible.builtin.constructed\nstrict: true\ngroups: {x: name.endswth('2')}\n", "undefined", ""),
    ],
)
def test_why_a_plugin_refused_its_file_is_said_and_not_that_it_is_no_ini(
    tmp_path: Path, text: str, cause: str, remedy: str
) -> None:
    folder = tmp_path / "both"
    folder.mkdir()
    write(folder / "a", "one\n")
    write(folder / "zz.constructed.yml", text)
    with pytest.raises(InventoryError) as caught:
        Inventory.read([str(folder)])
    assert cause in caught.value.message and "Invalid host pattern" not in caught.value.message
    assert remedy in (caught.value.remedy or "")


def test_who_names_the_inventory_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gone = tmp_path / "nodectl" / "lab" / "pair" / "inventory.yml"
    told = {
        (None, "/absent"): ("env: ANSIBLE_INVENTORY", "which ANSIBLE_INVENTORY names", "-i"),
        (None, str(gone)): ("env: ANSIBLE_INVENTORY", "the lab 'pair' is not up", "--name pair; or: unset"),
        (str(gone), str(gone)): ("default", "the lab 'pair' is not up", "nodectl lab up --name pair"),
    }
    for (given, listed), (origin, message, remedy) in told.items():
        monkeypatch.setattr(constants, "DEFAULT_HOST_LIST", [listed])
        origins = {"DEFAULT_HOST_LIST": ([listed], origin)}
        monkeypatch.setattr(constants.config, "get_config_value_and_origin", origins.__getitem__)
        with pytest.raises(InventoryError) as caught:
            Inventory.read([given] if given else [])
        assert message in caught.value.message and remedy in caught.value.remedy


@pytest.mark.parametrize("given", [[], ["localhost"], ["127.0.0.1,"], [socket.gethostname()], ["localhost,::1"]])
def test_this_machine_is_meant_by_its_names_and_where_no_inventory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "DEFAULT_HOST_LIST", ["/etc/ansible/absent"])
    monkeypatch.setattr(read, "_who_names_it", lambda: "default")
    inventory = Inventory.read(given)
    (host,) = inventory.hosts("127.0.0.1")
    assert (inventory.is_here, host.name, host.connection) == (True, "localhost", "local")
    with pytest.raises(InventoryError, match="matches 'node02'"):
        inventory.hosts("node02")


def test_a_file_of_this_machines_name_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "localhost", "node02\n")
    assert Inventory.read(["localhost"]).names() == ("node02",)


def test_ssh_settings_of_ansible_cfg(tmp_path: Path, cli_env: dict[str, str]) -> None:
    config = write(
        tmp_path / "ansible.cfg",
        "[defaults]\ninventory = hosts\nprivate_key_file = k\n"
        "[ssh_connection]\nssh_args = -C -o ControlMaster=auto\nssh_common_args = -o 'Port 7' -p 8\n",
    )
    write(tmp_path / "hosts", "a\nb ansible_ssh_common_args='-p 9'\n")
    code = (
        "from nodectl.transport.inventory.read import Inventory\nfrom nodectl.transport.ssh_target import target_of\n"
        "for host in Inventory.read(()).hosts(): print(target_of(host).port, *target_of(host).identity_files)"
    )
    environment = {**cli_env, "ANSIBLE_CONFIG": config}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["7", "9"]
    assert all(line.endswith("k") for line in done.stdout.splitlines())


def test_an_empty_ansible_inventory_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_INVENTORY", "")
    with pytest.raises(InventoryError, match="ANSIBLE_INVENTORY is empty"):
        read_inventory(())
