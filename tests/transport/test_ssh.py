"""Commands over a real sshd: results, input, deadlines, and that nothing stays behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodectl.model.host import Host
from nodectl.model.result import Outcome
from nodectl.transport import ssh
from nodectl.transport.base import Transport

if TYPE_CHECKING:
    from tests.transport.sshd_server import Sshd


def processes(marker: str) -> dict[int, str]:
    """By process the command lines on this machine that hold `marker` as a whole argument of their own program."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if marker in words[1:]:
            found[int(path.name)] = " ".join(words)[:100]
    return found


def gone(marker: str, within_s: float = 30) -> bool:
    deadline = time.monotonic() + within_s
    while processes(marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_arguments_arrive_as_they_were(sshd: Sshd, transport: Transport) -> None:
    odd = ["a b", "$HOME", "'", '"', "*", "\n", "`id`", ";", "-n", "ü", ""]
    done = transport.run(sshd.host(), ["printf", "%s|", *odd], timeout_s=60)
    assert (done.outcome, done.exit_status, done.stdout) == (Outcome.RAN, 0, "|".join(odd) + "|")


@pytest.mark.parametrize(
    ("argv", "status"),
    [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["no-such-program"], 127), (["sh", "-c", "kill -9 $$"], 137)],
)
def test_exit_status(sshd: Sshd, transport: Transport, argv: list[str], status: int) -> None:
    done = transport.run(sshd.host(), argv, timeout_s=60)
    assert (done.outcome, done.exit_status, done.ok) == (Outcome.RAN, status, status == 0)


@pytest.mark.parametrize("size", [0, 65_537, 3_000_000])
def test_input_is_exactly_what_was_given(sshd: Sshd, transport: Transport, size: int) -> None:
    done = transport.run(sshd.host(), ["wc", "-c"], timeout_s=30, stdin=b"x" * size)
    assert done.stdout.strip() == str(size)


@pytest.mark.parametrize("on_output", [False, True])
def test_a_login_shell_that_does_not_run_the_command_is_no_success(
    sshd: Sshd, transport: Transport, tmp_path: Path, on_output: bool
) -> None:
    host, heard = sshd.with_start_file("echo 'choose 1 or 2'; exit 0", tmp_path), list[bytes]()
    streamed = (lambda _, data: heard.append(data)) if on_output else None
    done = transport.run(host, ["echo", "ran"], timeout_s=60, stdin=b"input", on_output=streamed)
    assert (done.outcome, done.exit_status, done.stdout, heard) == (Outcome.UNREACHABLE, None, "", [])
    assert done.error == "its login shell ended with 0 and did not run the command: choose 1 or 2"
    assert ".bashrc" in done.remedy


def test_what_a_login_shell_prints_before_the_command_is_left_out(noisy_sshd: Sshd, transport: Transport) -> None:
    done = transport.run(noisy_sshd.host(), ["echo", "ran"], timeout_s=60)
    assert (done.outcome, done.exit_status, done.stdout) == (Outcome.RAN, 0, "ran\n")


def test_output_beyond_the_limit_is_cut_and_said(sshd: Sshd, transport: Transport) -> None:
    done = transport.run(sshd.host(), ["sh", "-c", "head -c 20000000 /dev/zero; echo end >&2"], timeout_s=60)
    assert (len(done.stdout), done.stderr, done.exit_status) == (16 << 20, "end\n", 0)
    assert "cut" in done.error


@pytest.mark.parametrize("stdin", [None, b"x" * 1_000_000])
def test_deadline_kills_the_whole_group(sshd: Sshd, transport: Transport, stdin: bytes | None) -> None:
    marker = f"3{time.time_ns()}"
    script = "trap '' TERM; sleep $1 & sleep $1"
    started = time.monotonic()
    done = transport.run(sshd.host(), ["sh", "-c", f"echo before; {script}", "sh", marker], timeout_s=4, stdin=stdin)
    assert (done.outcome, done.exit_status, done.stdout) == (Outcome.TIMEOUT, None, "before\n")
    assert time.monotonic() - started < 30
    assert gone(marker)


def test_a_daemon_left_on_purpose_lives_on(sshd: Sshd, transport: Transport) -> None:
    done = transport.run(sshd.host(), ["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"], timeout_s=60)
    pid = int(done.stdout)
    transport.close()
    time.sleep(3)
    os.kill(pid, signal.SIGTERM)  # raises where it is gone


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_runs_on_when_nodectl_is_gone(sshd: Sshd, tmp_path: Path, number: signal.Signals) -> None:
    marker = f"4{time.time_ns()}"
    inventory = sshd.inventory(tmp_path, "web[1:3]")
    command = [sys.executable, "-m", "nodectl", "-i", str(inventory), "exec", "--", "sleep", marker]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while sum(line.startswith("sleep") for line in processes(marker).values()) < 3:
        assert time.monotonic() < deadline, "the command did not start"
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number is signal.SIGINT else -signal.SIGKILL)
    assert gone(marker)


def test_refused_connection_is_a_result(sshd: Sshd, transport: Transport) -> None:
    dead = Host("dead", "127.0.0.1", 1, "root", "ssh", {})
    done = transport.run(dead, ["true"], timeout_s=30)
    assert (done.outcome, done.exit_status, done.error) == (
        Outcome.UNREACHABLE,
        None,
        "root@127.0.0.1:1: Connection refused",
    )


@pytest.mark.parametrize("address", ["gpu07..example.com", f"{'x' * 64}.example.com"])
def test_a_mistyped_address_is_that_hosts_result(transport: Transport, address: str) -> None:
    done = transport.run(Host("gpu07", address), ["true"], timeout_s=60)
    assert done.outcome is Outcome.UNREACHABLE and f"'{address}' is no host name" in done.error


def test_whatever_fails_with_one_host_is_its_result(monkeypatch: pytest.MonkeyPatch, transport: Transport) -> None:
    monkeypatch.setattr(ssh, "target_of", lambda _: 1 / 0)
    done = transport.run(Host("a", "a"), ["true"], timeout_s=60)
    assert (done.outcome, done.error) == (Outcome.UNREACHABLE, "ZeroDivisionError: division by zero")


def test_a_key_that_is_not_let_in(sshd: Sshd, transport: Transport, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    done = transport.run(sshd.host(ansible_ssh_private_key_file=str(tmp_path / "other")), ["true"], timeout_s=30)
    assert done.outcome is Outcome.UNREACHABLE
    assert "permission denied" in done.error
    assert str(tmp_path / "other") in done.error


def test_the_servers_reason_for_a_refused_login_is_shown(jump_sshd: Sshd, transport: Transport, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    done = transport.run(jump_sshd.host(ansible_ssh_private_key_file=str(tmp_path / "other")), ["true"], timeout_s=30)
    assert done.outcome is Outcome.UNREACHABLE
    assert "you have no active jobs on this node" in done.error


def test_an_encrypted_key_needs_the_agent(
    sshd: Sshd, transport: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "locked"
    key.write_bytes(sshd.key.read_bytes())
    key.chmod(0o600)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    done = transport.run(sshd.host(ansible_ssh_private_key_file=str(key)), ["true"], timeout_s=30)
    assert "encrypted: load it into your agent" in done.error


def test_the_agent_is_asked(sshd: Sshd, transport: Transport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            time.sleep(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", str(sshd.key)], check=True)
        nowhere = str(tmp_path / "no-such-key")
        assert transport.run(sshd.host(ansible_ssh_private_key_file=nowhere), ["true"], timeout_s=60).ok
    finally:
        agent.terminate()
        agent.wait()


def test_an_unknown_key_is_never_trusted(sshd: Sshd, transport: Transport, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    done = transport.run(sshd.host(ansible_ssh_common_args=f"-o UserKnownHostsFile={empty}"), ["true"], timeout_s=30)
    assert done.outcome is Outcome.UNREACHABLE
    assert "unknown host key ssh-ed25519 SHA256:" in done.error
    assert "hostkeys accept" in done.remedy
    assert not empty.exists()


def test_a_changed_key_is_refused(sshd: Sshd, transport: Transport, tmp_path: Path) -> None:
    other = sshd.folder / "authorized_keys"
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {' '.join(other.read_text().split()[:2])}\n")
    done = transport.run(sshd.host(ansible_ssh_common_args=f"-o UserKnownHostsFile={known}"), ["true"], timeout_s=30)
    assert "host key CHANGED" in done.error
    command = done.remedy.partition("rebuilt: ")[2].partition("; then")[0]
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert known.read_text() == ""


def test_a_proxy_command_leads_to_the_host_and_ends_with_the_connection(
    sshd: Sshd, jump_sshd: Sshd, transport: Transport, tmp_path: Path
) -> None:
    config, known = tmp_path / "config", tmp_path / "known_hosts"
    known.write_text(sshd.known_hosts.read_text() + jump_sshd.known_hosts.read_text())
    config.write_text(f"UserKnownHostsFile {known}\nIdentityFile {sshd.key}\n")
    proxy = f"ssh -F {config} -p {jump_sshd.port} -W %h:%p 127.0.0.1"
    host = sshd.host(ansible_ssh_common_args=f"-F {config} -o ProxyCommand='{proxy}'")
    done = transport.run(host, ["wc", "-c"], timeout_s=60, stdin=b"x" * 300_000)
    assert (done.outcome, done.stdout.strip()) == (Outcome.RAN, "300000"), done.error
    transport.close()
    assert gone(f"127.0.0.1:{sshd.port}")


@pytest.mark.parametrize("unknown", ["target", "first", "second"])
def test_an_unknown_key_is_refused_on_every_hop(
    sshd: Sshd, jump_sshd: Sshd, noisy_sshd: Sshd, transport: Transport, tmp_path: Path, unknown: str
) -> None:
    hops, known = {"first": jump_sshd, "second": noisy_sshd, "target": sshd}, tmp_path / "known_hosts"
    known.write_text("".join(hop.known_hosts.read_text() for name, hop in hops.items() if name != unknown))
    (tmp_path / "included").write_text(f"UserKnownHostsFile {known}\nIdentityFile {sshd.key}\n")
    (tmp_path / "config").write_text(f"Include {tmp_path}/included\n")
    through = f"-J 127.0.0.1:{jump_sshd.port},127.0.0.1:{noisy_sshd.port}"
    host = sshd.host(ansible_ssh_common_args=f"-F {tmp_path}/config {through}", ansible_ssh_private_key_file="")
    done = transport.run(host, ["true"], timeout_s=60)
    assert done.outcome is Outcome.UNREACHABLE
    assert f"127.0.0.1:{hops[unknown].port}: unknown host key" in done.error
    known.write_text(known.read_text() + hops[unknown].known_hosts.read_text())
    assert transport.run(host, ["true"], timeout_s=60).ok


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("{name} {key}", Outcome.RAN),
        ("@revoked * {key}\n{name} {key}", Outcome.UNREACHABLE),
        ("@cert-authority * {key}", Outcome.UNREACHABLE),
    ],
)
def test_hashed_names_and_markers_are_openssh_s(
    sshd: Sshd, transport: Transport, tmp_path: Path, line: str, outcome: Outcome
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(line.format(name=f"[127.0.0.1]:{sshd.port}", key=sshd.host_key) + "\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=False, capture_output=True)
    args = f"-o UserKnownHostsFile={known}"
    assert transport.run(sshd.host(ansible_ssh_common_args=args), ["true"], timeout_s=60).outcome is outcome
