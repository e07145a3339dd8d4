"""What of ansible_ssh_*_args and ssh_config reaches the target, and that anything else is named."""

import getpass
from pathlib import Path

import pytest

from nodectl.errors import InventoryError
from nodectl.model.host import Host
from nodectl.transport import ssh_target
from nodectl.transport.ssh_target import refuse_options, ssh_arguments, target_of


def host(address: str = "10.0.0.1", port: int | None = None, user: str | None = None, **variables: object) -> Host:
    return Host("gpu01", address, port, user, "ssh", variables)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an empty ssh_config, and a system-wide one of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_target, "_GLOBAL_CONFIG", tmp_path / "etc" / "ssh_config")
    ssh_target._defaults.cache_clear()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").touch()
    (tmp_path / "etc").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-p 2222 -l bob", {"port": 2222, "user": "bob"}),
        ("-C -vvv -tt -A -q -p2222 -lbob", {"port": 2222, "user": "bob"}),
        ('-o ProxyCommand="ssh -W %h:%p %r@j"', {"proxy_command": "ssh -W 10.0.0.1:22 {me}@j"}),
        ("-o 'ProxyCommand nc %h%% %p' -o ProxyJump=c", {"proxy_command": "nc 10.0.0.1% 22", "jump": None}),
        ("-o IdentitiesOnly=yes -o HostKeyAlias=rack1", {"identities_only": True, "key_name": "rack1"}),
        ("-p 2222 -o HostKeyAlias=rack1", {"port": 2222, "key_name": "rack1", "key_port": 22}),
        ("-p 2222", {"key_name": "10.0.0.1", "key_port": 2222}),
        ("-p 7 -l bob -o IdentityFile=/k/%n_%h_%p_%r_%%", {"identity_files": (Path("/k/10.0.0.1_10.0.0.1_7_bob_%"),)}),
        ("-o IdentityAgent=none -o PasswordAuthentication=no", {"agent": "", "allows_password": False}),
        ("-o IdentityAgent=/a -o 'UserKnownHostsFile=/k /l' -o GlobalKnownHostsFile=/g", {
            "agent": "/a", "known_hosts_files": (Path("/k"), Path("/l"), Path("/g"))}),
        ("-o ControlMaster=auto -o ControlPersist=60s -o LogLevel=ERROR -o ServerAliveInterval=30", {"port": 22}),
    ],
)  # fmt: skip
def test_obeyed_options(home: Path, text: str, expected: dict[str, object]) -> None:
    target = target_of(host(ansible_ssh_common_args=text))
    expected = {name: value.format(me=getpass.getuser()) if isinstance(value, str) else value
                for name, value in expected.items()}  # fmt: skip
    assert {name: getattr(target, name) for name in expected} == expected


def test_the_first_value_counts_and_identity_files_add_up(home: Path) -> None:
    args = {"ansible_ssh_args": "-l first -o IdentityFile=a", "ansible_ssh_extra_args": "-p 9 -o IdentityFile=b"}
    target = target_of(Host("gpu01", "10.0.0.1", 7, "own", variables={"ansible_private_key_file": "k", **args}))
    assert (target.user, target.port, target.identity_files) == ("first", 7, (Path("a"), Path("k"), Path("b")))


REFUSED = [
    ("AddressFamily inet", "addressfamily"),
    ("BindInterface lo", "bindinterface"),
    ("KnownHostsCommand /bin/keys", "knownhostscommand"),
    ("PubkeyAuthentication no", "pubkeyauthentication"),
    ("PreferredAuthentications password", "preferredauthentications"),
    ("RevokedHostKeys /r", "revokedhostkeys"),
    ("Ciphers aes256-ctr", "ciphers"),
    ("HostKeyAlgorithms ssh-ed25519", "hostkeyalgorithms"),
    ("RequiredRSASize 3072", "requiredrsasize"),
]


@pytest.mark.parametrize(("line", "named"), REFUSED)
def test_what_nodectl_does_not_obey_is_refused_by_name(home: Path, line: str, named: str) -> None:
    with pytest.raises(InventoryError, match=f"does not obey {named}"):
        refuse_options(host(ansible_ssh_extra_args=f"-o '{line}'"))
    (home / "included").write_text(f"Host 10.*\n  {line}\n")
    (home / ".ssh" / "config").write_text(f"Include {home}/included\n")
    with pytest.raises(InventoryError, match=f"does not obey {named}"):
        target_of(host())
    assert target_of(host("10.0.0.1", ansible_ssh_args="-F none")).port == 22


LOOSE = [
    ("StrictHostKeyChecking no", "stricthostkeychecking"),
    ("stricthostkeychecking=accept-new", "stricthostkeychecking"),
    ("NoHostAuthenticationForLocalhost yes", "nohostauthenticationforlocalhost"),
    ("VerifyHostKeyDNS yes", "verifyhostkeydns"),
]


@pytest.mark.parametrize(("line", "named"), LOOSE)
def test_an_inventory_that_asks_for_unchecked_keys_is_refused_and_a_ssh_config_overruled(
    home: Path, line: str, named: str
) -> None:
    (home / "mine").write_text(f"Host 10.*\n {line}\n")
    for words in (f"-o '{line}'", f"-F {home / 'mine'}"):
        with pytest.raises(InventoryError, match=f"{named} is .* never trusts"):
            target_of(host(ansible_ssh_common_args=words))
    (home / ".ssh" / "config").write_text(f"Port 7\n{line}\n")
    assert target_of(host()).port == 7


def test_the_systems_algorithms_are_passed_over_and_its_revoked_keys_refused(home: Path) -> None:
    system = home / "etc" / "ssh_config"
    system.write_text("Ciphers aes256-ctr\nRequiredRSASize 3072\n")
    (home / ".ssh" / "config").write_text(f"Include {system}\n")
    assert target_of(host()).port == 22
    system.write_text("RevokedHostKeys /r\n")
    ssh_target._defaults.cache_clear()
    with pytest.raises(InventoryError, match="revokedhostkeys"):
        target_of(host())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("-p", "Bad port"),
        ("-o", "no argument|missing argument|Bad configuration"),
        ("-o NobodyKnows=1", "nobodyknows"),
        ("-o IdentitiesOnly=maybe", "maybe"),
        ("host -p 7", "a word of .*host -p 7 belongs to no option"),
        ("-F /srv/our fleet/ssh_config", "/srv/our"),
        ("-o IdentityFile=/k/%C", "does not expand %C in /k/%C"),
        ("""-o 'UserKnownHostsFile="/srv/known hosts.d/x"'""", "userknownhostsfile has hosts.d/x after a blank"),
        ("-Q kex", "belongs to no option"),
        ("-o 'Port 7", "ansible_ssh_common_args: No closing quotation"),
    ],
)
def test_words_that_ssh_cannot_use_are_named(text: str, named: str) -> None:
    with pytest.raises(InventoryError, match=named):
        refuse_options(host(ansible_ssh_common_args=text))
        target_of(host(ansible_ssh_common_args=text))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ansible_host_key_checking", False),
        ("ansible_ssh_host_key_checking", "no"),
        ("ansible_paramiko_host_key_auto_add", True),
        ("ansible_ssh_executable", "/tmp/ssh"),
    ],
)
def test_a_variable_by_which_keys_would_not_be_checked_is_refused_with_the_reason(variable: str, value: object) -> None:
    with pytest.raises(InventoryError, match=f"host gpu01: {variable} is .*: ") as caught:
        ssh_arguments(Host("gpu01", "10.0.0.1", variables={variable: value}))
    assert caught.value.remedy
    strict = {"ansible_host_key_checking": True, "ansible_ssh_host_key_checking": "yes", "ansible_ssh_executable": None}
    assert ssh_arguments(Host("gpu01", "10.0.0.1", variables=strict)) == ()


def test_jump_hosts_are_resolved_by_ssh_config_and_trusted_by_the_hosts_files(home: Path) -> None:
    config = home / "config"
    config.write_text(
        "Host 10.*\n  User cfg\n  Port 2200\n  ProxyJump outer,hop@gate:2201\n  HostKeyAlias alias\n"
        "Host gate\n  HostName gate.lan\n  UserKnownHostsFile /gate\n"
    )
    target = target_of(host(user="own", ansible_ssh_extra_args=f"-F {config} -o UserKnownHostsFile=/mine"))
    assert (target.user, target.port, target.key_name) == ("own", 2200, "alias")
    assert target.known_hosts_files[0] == Path("/mine")
    jump = target.jump
    assert jump is not None and jump.jump is not None
    assert (jump.user, jump.address, jump.port, jump.jump.address) == ("hop", "gate.lan", 2201, "outer")
    assert jump.known_hosts_files[0] == Path("/gate") and Path("/mine") in jump.known_hosts_files


def test_an_address_is_no_option(home: Path) -> None:
    with pytest.raises(InventoryError, match="not an address"):
        target_of(host("-oProxyCommand=reboot"))
