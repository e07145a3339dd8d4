"""What ansible_ssh_*_args may say, and that anything else is named."""

import getpass
from pathlib import Path

import pytest

from nodectl.errors import InventoryError
from nodectl.model.host import Host
from nodectl.transport import ssh_target
from nodectl.transport.ssh_options import ALGORITHMS, OBEYED, SshOptions, options_of, parse_options
from nodectl.transport.ssh_target import config_matters, target_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-p 2222 -l bob", SshOptions(port=2222, user="bob")),
        ("-p2222 -lbob -iid -Fcfg", SshOptions(port=2222, user="bob", identity_files=("id",), config_file="cfg")),
        ("-J a@b:3,c", SshOptions(proxy_jump="a@b:3,c")),
        ("-o ProxyJump=b -J c", SshOptions(proxy_jump="b")),
        ("-i a -o IdentityFile=b", SshOptions(identity_files=("a", "b"))),
        ("-o 'UserKnownHostsFile=/a /b'", SshOptions(known_hosts_files=("/a", "/b"))),
        ('-o ProxyCommand="ssh -W %h:%p j"', SshOptions(proxy_command="ssh -W %h:%p j")),
        ("-o 'ProxyCommand ssh -o User=a -W %h:%p j'", SshOptions(proxy_command="ssh -o User=a -W %h:%p j")),
        ("-o IdentitiesOnly=yes -o HostKeyAlias=rack1", SshOptions(identities_only=True, host_key_alias="rack1")),
    ],
)
def test_known_options(text: str, expected: SshOptions) -> None:
    assert parse_options(text, "ansible_ssh_common_args") == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("-4", "-4"),
        ("-vb", "-vb"),
        ("-o BindInterface=eth1", "BindInterface"),
        ("-o RevokedHostKeys=/r", "RevokedHostKeys"),
        ("-o Ciphers=aes256-ctr", "Ciphers"),
        ("-o KnownHostsCommand=/bin/keys", "KnownHostsCommand"),
        ("-o IdentitiesOnly=maybe", "maybe"),
        ("-o StrictHostKeyChecking=false", "StrictHostKeyChecking"),
        ("-o 'StrictHostKeyChecking=\"no\"'", "StrictHostKeyChecking"),
        ("-o 'stricthostkeychecking   accept-new'", "stricthostkeychecking"),
        ("-p", "-p"),
        ("-p ssh", "ssh"),
        ("host", "host"),
        ("-F /srv/our fleet/ssh_config", "'fleet/ssh_config' belongs to no option"),
    ],
)
def test_others_are_named(text: str, named: str) -> None:
    with pytest.raises(InventoryError, match=named) as caught:
        parse_options(text, "ansible_ssh_common_args")
    assert "ansible_ssh_common_args" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "-C -o ControlMaster=auto -o ControlPersist=60s -o ControlPath=~/.ansible/cp/%h",
        "-o ServerAliveInterval=30 -o ServerAliveCountMax=5 -o TCPKeepAlive=yes -o ConnectTimeout=10",
        "-q -A -tt -vvv -o LogLevel=ERROR -o BatchMode=yes",
        "-o GSSAPIAuthentication=no -o UpdateHostKeys=yes -o CASignatureAlgorithms=ssh-ed25519",
        "-o 'ForwardAgent yes' -oCompression=yes",
    ],
)
def test_what_steers_the_openssh_client_alone_means_nothing_here(text: str) -> None:
    assert parse_options(f"{text} -p 7", "ansible_ssh_args") == SshOptions(port=7)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ansible_host_key_checking", False),
        ("ansible_ssh_host_key_checking", "no"),
        ("ansible_paramiko_host_key_auto_add", True),
        ("ansible_ssh_executable", "/tmp/ssh"),
        ("mitogen_via", "gate"),
    ],
)
def test_a_variable_by_which_keys_would_not_be_checked_is_refused_with_the_reason(variable: str, value: object) -> None:
    with pytest.raises(InventoryError, match=f"host gpu01: {variable} is .*: ") as caught:
        options_of(Host("gpu01", "10.0.0.1", None, None, "ssh", {variable: value}))
    assert caught.value.remedy
    strict = {"ansible_host_key_checking": True, "ansible_ssh_host_key_checking": "yes", "ansible_ssh_executable": None}
    assert options_of(Host("gpu01", "10.0.0.1", None, None, "ssh", strict)) == SshOptions()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("StrictHostKeyChecking no", "stricthostkeychecking"),
        ("NoHostAuthenticationForLocalhost yes", "nohostauthenticationforlocalhost"),
        ("KnownHostsCommand /bin/keys", "knownhostscommand"),
        ("VerifyHostKeyDNS yes", "verifyhostkeydns"),
    ],
)
def test_a_file_that_the_inventory_names_says_none_of_it_either(home: Path, line: str, named: str) -> None:
    (home / "mine").write_text(f"Host 10.*\n {line}\n")
    with pytest.raises(InventoryError, match=named):
        target_of(host(ansible_ssh_common_args=f"-F {home / 'mine'}"))


def test_in_the_operators_own_file_the_checks_are_overruled_and_the_rest_is_named(home: Path) -> None:
    config = home / ".ssh" / "config"
    config.write_text("Host *\n  StrictHostKeyChecking no\n  UpdateHostKeys yes\n  LocalForward 8080 a:80\n  Port 7\n")
    assert target_of(host()).port == 7
    config.write_text("Host *\n  BindInterface lo\n")
    ssh_target._keywords.cache_clear()
    with pytest.raises(InventoryError, match=r"ssh_config, for 10.0.0.1: nodectl does not obey bindinterface \(lo\)"):
        target_of(host())


SAFE = "IdentityAgent=none PasswordAuthentication=no AddressFamily=inet GlobalKnownHostsFile=/g"


@pytest.mark.parametrize("inline", [True, False], ids=["in the inventory", "in ssh_config"])
def test_what_is_for_safety_reaches_the_target(home: Path, inline: bool) -> None:
    if inline:
        target = target_of(host(ansible_ssh_args=" ".join(f"-o {word}" for word in SAFE.split())))
    else:
        (home / ".ssh" / "config").write_text("Host *\n" + SAFE.replace(" ", "\n").replace("=", " "))
        target = target_of(host())
    assert (target.methods, target.family) == (("publickey",), "inet")
    assert target.identity_agent == "" and target.known_hosts_files[-1] == Path("/g")


LISTS = "Ciphers aes256-ctr\nHostKeyAlgorithms ssh-ed25519\nRequiredRSASize 3072\n"


@pytest.mark.parametrize("line", [*LISTS.splitlines(), "RevokedHostKeys /r"])
def test_the_operators_algorithms_and_revoked_keys_are_refused_by_name(home: Path, line: str) -> None:
    (home / ".ssh" / "config").write_text(f"Host *\n  {line}\n")
    with pytest.raises(InventoryError, match=f"does not obey {line.split()[0].lower()}"):
        target_of(host())


def test_the_systems_algorithms_are_passed_over_and_its_revoked_keys_refused(home: Path) -> None:
    (home / "etc").mkdir()
    (home / "etc" / "ssh_config").write_text(LISTS)
    assert not config_matters()
    (home / ".ssh" / "config").write_text("Host *\n  Port 7\n")
    ssh_target._keywords.cache_clear()
    assert target_of(host()).port == 7
    (home / "etc" / "ssh_config").write_text("RevokedHostKeys /r\n")
    ssh_target._keywords.cache_clear()
    assert config_matters()


def test_every_option_that_openssh_prints_has_a_place(home: Path) -> None:
    printed = ssh_target._unset().keys() - {"host", "checkhostip", "proxyusefdpass"}
    assert not printed - OBEYED - ssh_target._HARMLESS - ALGORITHMS


def host(address: str = "10.0.0.1", port: int | None = None, user: str | None = None, **variables: object) -> Host:
    return Host("gpu01", address, port, user, "ssh", variables)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no system-wide ssh_config."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_target, "_GLOBAL_CONFIG", tmp_path / "etc" / "ssh_config")
    ssh_target._keywords.cache_clear()
    ssh_target._unset.cache_clear()
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def test_defaults_without_any_file(home: Path) -> None:
    target = target_of(host())
    assert (target.address, target.port, target.user, target.key_name) == (
        "10.0.0.1",
        22,
        getpass.getuser(),
        "10.0.0.1",
    )
    assert home / ".ssh" / "id_ed25519" in target.identity_files
    assert target.known_hosts_files[0] == home / ".ssh" / "known_hosts"


@pytest.mark.parametrize("directive", ["ProxyJump b", "User=bob", "Port 22", "HostKeyAlias x", "NobodyKnows y"])
def test_directives_that_matter_are_found_behind_an_include(home: Path, directive: str) -> None:
    (home / ".ssh" / "more.conf").write_text(f"  {directive}\n")
    (home / ".ssh" / "config").write_text("Include *.conf\n")
    assert config_matters()


def test_ssh_config_is_resolved_by_ssh(home: Path) -> None:
    config = home / "config"
    config.write_text(
        "Host 10.*\n  User cfg\n  Port 2200\n  ProxyJump hop@gate:2201\n  HostKeyAlias alias\n  IdentitiesOnly yes\n"
        "Host gate\n  HostName gate.lan\n  UserKnownHostsFile /gate\n"
    )
    target = target_of(host(user="own", ansible_ssh_extra_args=f"-F {config} -o UserKnownHostsFile=/mine"))
    assert (target.user, target.port, target.key_name, target.identities_only) == ("own", 2200, "alias", True)
    assert target.known_hosts_files[0] == Path("/mine")
    jump = target.jump
    assert jump is not None
    assert (jump.user, jump.address, jump.port) == ("hop", "gate.lan", 2201)
    assert jump.known_hosts_files[0] == Path("/gate")


def test_an_address_is_no_option(home: Path) -> None:
    with pytest.raises(InventoryError, match="not an address"):
        target_of(host("-oProxyCommand=reboot"))
