"""Plug-ins of collections, and Ansible's own options: for what nodectl reads as for the playbooks that it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli

SHADED = (
    "plugin: ansible.builtin.constructed\nuse_extra_vars: true\n"
    "compose: {shade: colour}\ngroups: {tuned: shade == 'blue'}\n"
)
LOOKUP = (
    "from ansible.plugins.lookup import LookupBase\n\nDOCUMENTATION = 'name: rack\\nshort_description: a rack'\n\n"
    "class LookupModule(LookupBase):\n    def run(self, terms, variables=None, **kwargs):\n        return ['rack-7']\n"
)


def write(path: Path, text: str, mode: int = 0o644) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def home(nodectl: Cli, tmp_path: Path) -> Cli:
    """nodectl for an operator whose own collections lie where Ansible looks for them."""
    plugins = tmp_path / "home" / ".ansible" / "collections" / "ansible_collections" / "site" / "racks" / "plugins"
    write(plugins / "lookup" / "rack.py", LOOKUP)
    env = {name: value for name, value in nodectl.env.items() if name != "ANSIBLE_HOME"}
    return Cli({**env, "HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")})


def hosts_of(cli: Cli, *options: str) -> list[str]:
    done = cli(*options, "--output", "json", "exec", "--", "true")
    return sorted(row["host"] for row in json.loads(done.stdout)["results"])


def local(folder: Path, variables: str = "") -> str:
    return write(folder / "hosts", f"a colour=blue\nb colour=red\n[all:vars]\nansible_connection=local\n{variables}")


def test_a_lookup_of_the_operators_own_collection(home: Cli, tmp_path: Path) -> None:
    port = "ansible_port={{ 22 if lookup('site.racks.rack') == 'rack-7' else 'no' }}\n"
    source = local(tmp_path, port)
    assert hosts_of(home, "-i", source) == ["a", "b"]


def test_a_plug_in_that_is_nowhere_is_named_with_what_to_do(home: Cli, tmp_path: Path) -> None:
    source = local(tmp_path, "ansible_port={{ lookup('site.nothing.rack') }}\n")
    done = home("-i", source, "exec", "--", "true", check=False)
    assert (done.returncode, "site.nothing.rack" in done.stderr) == (2, True)
    assert "ansible-galaxy collection install" in done.stderr


def test_extra_variables_win_before_and_after_the_command_and_add_up(home: Cli, tmp_path: Path) -> None:
    source = local(tmp_path)
    more = write(tmp_path / "more.yml", "nodectl_tuning: no-such-tuning\n")
    made = write(tmp_path / "made.constructed.yml", SHADED)
    assert hosts_of(home, "-i", source, "-i", made, "-e", "colour=blue", "-l", "tuned") == ["a", "b"]
    done = home("-e", "nodectl_stack=no-such-stack", "-i", source, "health", "-e", f"@{more}", check=False)
    assert "no-such-stack" in done.stdout + done.stderr
    refused = home("-i", source, "-e", "{colour", "exec", "--", "true", check=False)
    assert (refused.returncode, "--extra-vars" in refused.stderr) == (2, True)


@pytest.fixture
def vaulted(home: Cli, tmp_path: Path) -> tuple[str, str, str]:
    """(an inventory with a vaulted file of the id `prod`, the password's file, the password)."""
    password = write(tmp_path / "password", "open-sesame\n")
    secret = write(tmp_path / "group_vars" / "all.yml", "ansible_connection: local\n")
    argv = ["ansible-vault", "encrypt", "--vault-id", f"prod@{password}", secret]
    subprocess.run(argv, env=dict(home.env), check=True, capture_output=True)
    return write(tmp_path / "hosts", "a\n"), password, "open-sesame"


def test_a_vaults_password_from_a_file_an_id_and_a_prompt(home: Cli, vaulted: tuple[str, str, str]) -> None:
    source, file, password = vaulted
    assert hosts_of(home, "-i", source, "--vault-password-file", file) == ["a"]
    assert hosts_of(home, "-i", source, "--vault-id", f"prod@{file}") == ["a"]
    for option in (("--ask-vault-pass",), ("--vault-id", "prod@prompt")):
        done = home("-i", source, *option, "exec", "--", "true", input=f"{password}\n", check=False)
        assert done.returncode == 0, done.stderr


def test_a_vault_that_stays_shut_says_so(home: Cli, vaulted: tuple[str, str, str], tmp_path: Path) -> None:
    wrong = write(tmp_path / "wrong", "no\n")
    done = home("-i", vaulted[0], "--vault-password-file", wrong, "exec", "--", "true", check=False)
    assert done.returncode == 2
    assert "give the password that it was encrypted with" in done.stderr and "correct the file" not in done.stderr


def test_the_key_and_the_login_password_reach_hosts_that_name_none(tmp_path: Path) -> None:
    code = (
        "from nodectl.transport.inventory import read_inventory\nfrom nodectl.common.access import Access\n"
        "from nodectl.transport.ssh_target import password_of, target_of\n"
        "import sys\naccess = Access(private_key='~/site.key', ask_pass=True, ask=lambda prompt: '{{ typed }}')\n"
        "for host in read_inventory([sys.argv[1]], access).hosts():\n"
        "    print(target_of(host).identity_files[0], password_of(host))\n"
    )
    text = "a\nb ansible_ssh_private_key_file=/own.key ansible_password=own\n"
    argv = [sys.executable, "-c", code, write(tmp_path / "hosts", text)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == f"{Path('~/site.key').expanduser()} {{{{ typed }}}}"
    assert second == "/own.key own"


def test_what_the_inventory_says_of_all_goes_over_the_playbooks_own(home: Cli, tmp_path: Path) -> None:
    from nodectl.common.resources import collections_dir

    write(tmp_path / "group_vars" / "all.yml", "nic_mtu: 4321\n")
    source = local(tmp_path)
    # as our playbooks name a role, by an Ansible with settings of its own
    role = "{name: nodectl.fleet.nic, tasks_from: validate, defaults_from: ., rolespec_validate: false}"
    shown = "{ansible.builtin.debug: {msg: '{{ nic_mtu }}, {{ nic_rings }}'}}"
    tasks = f"[{{ansible.builtin.import_role: {role}, when: false}}, {shown}]"
    fleet = "{nic: {mtu: 9000, rings: max}}"
    play = write(
        tmp_path / "show.yml", f"- {{hosts: all, gather_facts: false, vars: {{fleet: {fleet}}}, tasks: {tasks}}}\n"
    )
    env = {**home.env, "ANSIBLE_COLLECTIONS_PATH": str(collections_dir())}
    done = subprocess.run(
        ["ansible-playbook", "-i", source, play], env=env, capture_output=True, text=True, check=False
    )
    assert "4321, True" in done.stdout, done.stdout + done.stderr
