"""What is broken here, or on the way to a host, is a finding with what mends it, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodectl.doctor.course import HERE, looked
from nodectl.doctor.hosts import _sudo
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Entry
from nodectl.model.status import Status
from tests.conftest import Cli

if TYPE_CHECKING:
    from tests.transport.sshd_server import Sshd

_KEYS = {"host", "check", "subject", "status", "action", "expected", "actual", "remedy", "evidence"}


@pytest.fixture
def ask(nodectl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`doctor` in an empty folder and home; its exit status, and what is not fine by check."""
    monkeypatch.chdir(tmp_path)

    def examine(*args: str, **env: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
        done = nodectl("doctor", *args, "--output", "json", check=False, env={"HOME": str(tmp_path), **env})
        document = json.loads(done.stdout)
        assert document["schema"] == "nodectl.doctor/1"
        assert all(set(row) == _KEYS for row in document["findings"])
        assert "Traceback" not in done.stderr
        bad: dict[str, list[dict[str, str]]] = {}
        for row in document["findings"]:
            if row["status"] not in ("ok", "skipped"):
                assert row["remedy"], row
                bad.setdefault(row["check"], []).append(row)
        return done.returncode, bad

    return examine


def test_without_an_inventory_it_looks_at_this_machine_which_needs_no_key(ask: Any) -> None:
    _, bad = ask()
    assert not bad.keys() & {"inventory", "keys", "known_hosts", "reach"}
    _, bad = ask("-i", "nobody.invalid,")
    assert "ssh-keygen" in bad["keys"][0]["remedy"]


def test_a_broken_ansible_cfg_is_told_once(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.cfg").write_text("[defaults\nforks = 3\n")
    status, bad = ask(ANSIBLE_CONFIG=str(tmp_path / "bad.cfg"))
    assert status == 1
    assert [row["status"] for row in bad["ansible"]] == ["failed"]
    assert "bad.cfg" in bad["ansible"][0]["actual"]
    assert "Ansible does not start" in bad["inventory"][0]["actual"]


def test_what_disturbs_is_named_without_its_value(ask: Any, tmp_path: Path) -> None:
    values = {"ANSIBLE_BECOME_EXE": "s3cret"}
    disturbed = {"LC_ALL": "xx_XX", "ANSIBLE_HOST_KEY_CHECKING": "no"}
    _, bad = ask("-i", "nobody.invalid,", **disturbed, **values)
    assert {row["subject"] for row in bad["ansible"]} == {"host keys"}
    assert bad["locale"][0]["status"] == "warning"
    assert bad["locale"][0]["remedy"] == "export LC_ALL=C.UTF-8"
    assert "s3cret" not in json.dumps(bad)


def test_a_program_and_an_inventory_that_do_not_exist(ask: Any, tmp_path: Path) -> None:
    status, bad = ask("-i", "gone.yml", PATH=str(Path(sys.executable).parent))
    assert status == 1
    assert {row["subject"]: row["status"] for row in bad["programs"]} == {"ssh": "failed"}
    assert "gone.yml (by -i)" in bad["inventory"][0]["actual"]


_HOSTS = """
all:
  hosts:
    refused1: {ansible_host: 127.0.0.1, ansible_port: 1}
    refused2: {ansible_host: 127.0.0.1, ansible_port: 2}
    noname: {ansible_host: nowhere.invalid}
    undefined: {ansible_host: "{{ nosuch }}"}
    values: {ansible_connection: local, nodectl_tuning: "{{ x.y }}", ansible_become_password: "{{ 'hunter2' + 1 }}"}
    option: {ansible_ssh_common_args: -o StrictHostKeyChecking=no}
    profile: {ansible_connection: local, nodectl_stack: cpuu}
"""


def test_hosts_and_variables_that_fail_end_no_other_look(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(_HOSTS)
    status, bad = ask("-i", "hosts.yml")
    assert status == 1
    faults = {(row["host"], row["subject"]) for row in bad["variables"]}
    names = {("values", "nodectl_tuning"), ("values", "ansible_become_password")}
    assert faults == {("undefined", ""), ("option", ""), *names}
    assert "hunter2" not in json.dumps(bad)
    reach = {row["host"]: row for row in bad["reach"]}
    assert set(reach) == {"refused1", "refused2", "noname"}
    assert reach["refused1"]["actual"] == reach["refused2"]["actual"]
    assert "start sshd" in reach["refused1"]["remedy"] and "resolved" in reach["noname"]["remedy"]
    assert "did you mean cpu?" in next(row for row in bad["profiles"] if row["host"] == "profile")["remedy"]


def test_a_limit_that_matches_nothing_is_a_bad_request(nodectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(_HOSTS)
    done = nodectl("doctor", "-i", str(tmp_path / "hosts.yml"), "-l", "refused3", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean refused" in done.stderr


def test_a_real_host_by_its_key(ask: Any, sshd: Sshd, tmp_path: Path) -> None:
    inventory = sshd.inventory(tmp_path)
    _, bad = ask("-i", str(inventory))
    assert not {"reach", "keys", "known_hosts", "python", "inventory"} & set(bad)
    known = tmp_path / "known_hosts"
    text = inventory.read_text().replace(str(sshd.known_hosts), str(known))
    inventory.write_text(text)
    status, bad = ask("-i", str(inventory))
    assert status == 3
    assert bad["reach"][0]["actual"] == "unknown host key"
    assert "SHA256:" in bad["reach"][0]["evidence"] and "hostkeys accept" in bad["reach"][0]["remedy"]
    known.write_text(f"[127.0.0.1]:{sshd.port} {(sshd.folder / 'authorized_keys').read_text()}")
    _, bad = ask("-i", str(inventory))
    assert bad["reach"][0]["actual"].startswith("host key CHANGED: this is another machine")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "pass", "-f", str(key)], check=True)
    inventory.write_text(text.replace(str(known), str(sshd.known_hosts)).replace(str(sshd.key), str(key)))
    _, bad = ask("-i", str(inventory), SSH_AUTH_SOCK="")
    assert bad["keys"][0]["remedy"] == f'eval "$(ssh-agent -s)"; ssh-add {key}'
    assert bad["reach"][0]["actual"].startswith("permission denied")


def _said(text: str) -> Entry:
    return Entry("doctor_sudo", ("sh",), 0, text, "", 0.1)


@pytest.mark.parametrize(
    ("text", "given", "found"),
    [
        ("root\n", False, [("", "ok", "the login is root")]),
        ("free\n", False, [("", "ok", "without a password")]),
        ("sudo: a password is required\nlooks\n", False, [("", "warning", "wants a password")]),
        ("sudo: a password is required\nlooks\n", True, [("", "ok", "with a password, which is given")]),
        ("missing\n", False, [("", "warning", "not installed"), ("looking", "warning", "will not tell")]),
        ("op is not in the sudoers file.\n", True, [("", "warning", "may not use"), ("looking", "warning", "")]),
        ("sudo: unable to resolve\nlooks\n", False, [("", "unknown", "unable to resolve")]),
    ],
)
def test_sudo(text: str, given: bool, found: list[tuple[str, str, str]]) -> None:
    findings = list(_sudo(Host("n1", "n1", user="op"), _said(text), password_given=given))
    assert [(one.subject, str(one.status)) for one in findings] == [one[:2] for one in found]
    assert all(words in one.actual for one, (*_, words) in zip(findings, found, strict=True))
    wrong = [one for one in findings if one.status is not Status.OK]
    assert all("sudoers --user op" in one.remedy for one in wrong if "wants" in one.actual or one.subject)


def test_a_look_that_breaks_keeps_what_it_found() -> None:
    def look() -> Iterator[Finding]:
        yield Finding(HERE, "first", Status.OK)
        raise ZeroDivisionError("nobody thought of it")

    first, broken = looked("second", look)
    assert (first.check, broken.check, broken.status) == ("first", "second", Status.UNKNOWN)
    assert "nobody thought of it" in broken.actual
