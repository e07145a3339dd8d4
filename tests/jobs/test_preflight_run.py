"""Preflight over several hosts: one look each, what was heard put together, the way to the first tried."""

import ipaddress
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodectl.facts.job import Names
from nodectl.facts.time import Clock
from nodectl.inventory.read import Inventory
from nodectl.jobs.preflight import JobNeeds, PreflightReport, run_preflight
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.transport.base import OnOutput
from nodectl.transport.router import open_transport

NEEDS = JobNeeds(candidate_ports=(23411, 23412, 23413), launcher="/bin/sh", venv=None)
A, B = Host("a", "127.0.0.1"), Host("b", "127.0.0.2")


@dataclass
class Here:
    """Every host is this machine, with a home of its own; `change` may alter what a host says."""

    home: Path
    change: Callable[[str, bytes], bytes] = field(default=lambda host, line: line)
    dead: Sequence[str] = ()
    path: str = os.environ["PATH"]

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        if host.name in self.dead:
            return CommandResult(
                host.name, tuple(argv), Outcome.UNREACHABLE, None, "", "", 0.1, error="no route", remedy="plug it in"
            )
        home = str(self.home / host.name)
        env = {"PATH": self.path, "HOME": home}
        done = subprocess.run(list(argv), input=stdin, capture_output=True, env=env, timeout=60, check=False)
        said = b"".join(self.change(host.name, line) for line in done.stdout.splitlines(keepends=True))
        if on_output:
            on_output("stdout", said)
            on_output("stderr", done.stderr)
        out, err = ("", "") if on_output else (said.decode(), done.stderr.decode())
        return CommandResult(host.name, tuple(argv), Outcome.RAN, done.returncode, out, err, 0.1)

    def close(self) -> None:
        """Nothing is open."""


def of(report: PreflightReport, check: str) -> dict[str, Finding]:
    return {finding.host: finding for finding in report.findings if finding.check == check}


def bad(report: PreflightReport) -> set[tuple[str, str, str]]:
    """What is not fine; but jobs that tests beside this one run on this machine are nobody's fault."""
    findings = [one for one in report.findings if one.check != "launch_other_jobs"]
    return {(one.host, one.check, one.status.value) for one in findings if one.status is not Status.OK}


def test_one_host_is_fine_by_itself(tmp_path: Path) -> None:
    report = run_preflight(Here(tmp_path), [A], NEEDS, forks=4)
    assert bad(report) == set() and report.ports == NEEDS.candidate_ports
    host = report.candidates["a"]
    assert host.known("names", Names).hostname == socket.gethostname()
    assert abs(host.known("time", Clock).offset_s) < 5


def test_a_dead_host_is_unknown_and_the_others_are_still_judged(tmp_path: Path) -> None:
    report = run_preflight(Here(tmp_path, dead=["b"]), [A, B], NEEDS, forks=4)
    assert {finding for finding in bad(report) if finding[0] == "b"} == {("b", "launch_reachable", "unknown")}
    assert of(report, "launch_script")["a"].status is Status.OK
    assert (of(report, "launch_reachable")["b"].actual, of(report, "launch_reachable")["b"].remedy) == (
        "no route",
        "plug it in",
    )
    assert list(report.candidates) == ["a"]


def test_all_hosts_dead(tmp_path: Path) -> None:
    report = run_preflight(Here(tmp_path, dead=["a", "b"]), [A, B], NEEDS, forks=4)
    assert (
        bad(report) == {("a", "launch_reachable", "unknown"), ("b", "launch_reachable", "unknown")}
        and report.ports == ()
    )


def test_one_machine_listed_twice_is_found(tmp_path: Path) -> None:
    assert ("b", "launch_hostname", "failed") in bad(run_preflight(Here(tmp_path), [A, B], NEEDS, forks=4))


def test_clocks_are_compared_by_what_arrives(tmp_path: Path) -> None:
    def late(host: str, line: bytes) -> bytes:
        words = line.split()
        if host == "b" and words[:1] == [b"nodectl-collect/2"]:
            words[1] = b"%.3f" % (float(words[1]) + 30)
            return b" ".join(words) + b"\n"
        return line

    clocks = of(run_preflight(Here(tmp_path, late), [A, B], NEEDS, forks=4), "launch_clock")
    assert {host: clock.status.value for host, clock in clocks.items()} == {"a": "failed", "b": "failed"}
    assert "behind" in clocks["a"].actual and "ahead" in clocks["b"].actual


def test_a_host_without_python_fails_and_says_so(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "sh",
        "mkdir",
        "mktemp",
        "tar",
        "mv",
        "rm",
        "id",
        "date",
        "head",
        "tail",
        "sed",
        "sleep",
        "gzip",
        "cat",
    ):
        (tools / name).symlink_to(
            next(path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists())
        )
    report = run_preflight(Here(tmp_path, path=str(tools)), [A], NEEDS, forks=4)
    assert bad(report) == {("a", "launch_payload", "failed")} and "python3" in of(report, "launch_payload")["a"].actual


def test_a_host_that_talks_nonsense_is_unknown(tmp_path: Path) -> None:
    report = run_preflight(Here(tmp_path, lambda host, line: b"motd\n"), [A], NEEDS, forks=4)
    assert (
        bad(report) == {("a", "launch_reachable", "unknown")}
        and "did not start" in of(report, "launch_reachable")["a"].actual
    )


@contextmanager
def changed(lab: Any, host: str, do: str, undo: str) -> Iterator[None]:
    lab.ssh(host, do)
    try:
        yield
    finally:
        lab.ssh(host, undo)


def preflight(lab: Any, **changes: Any) -> PreflightReport:
    transport = open_transport()
    try:
        needs = JobNeeds(**{"candidate_ports": (23421, 23422), "launcher": "/bin/sh", "venv": None, **changes})
        return run_preflight(transport, Inventory.read([lab.inventory]).hosts(None), needs, forks=8)
    finally:
        transport.close()


@pytest.mark.lab
def test_the_lab_is_fit_for_a_job(lab4: Any) -> None:
    report = preflight(lab4)
    assert bad(report) == set() and report.ports == (23421, 23422)
    assert {each.address.interface for each in report.candidates.values()} == {"eth0"}
    assert {finding.host for finding in of(report, "launch_way_to_first").values()} == {"node02", "node03", "node04"}


@pytest.mark.lab
@pytest.mark.parametrize(
    ("do", "undo", "check", "status"),
    [
        ("ip route add blackhole {first}", "ip route del blackhole {first}", "launch_way_to_first", "failed"),
        ("ip link set eth0 mtu 1400", "ip link set eth0 mtu 1500", "launch_mtu", "warning"),
        ("hostname node02", "hostname node03", "launch_hostname", "failed"),
        ("hostname nobody-knows", "hostname node03", "launch_own_name", "failed"),
        ("mkdir -p /r && mount -t tmpfs -o ro none /r", "umount /r; rmdir /r", "launch_checkpoint_folder", "failed"),
    ],
)
def test_a_fault_on_one_host_is_found_there(
    lab4: Any, do: str, undo: str, check: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodectl.jobs.preflight._REACH_AGAIN_S", 3.0)
    first = lab4.status["hosts"][0]["address"]
    with changed(lab4, "node03", do.format(first=first), undo.format(first=first)):
        report = preflight(lab4, checkpoint_dir="/r/deep")
    assert ("node03", check, status) in bad(report)
    assert {host for host, _, _ in bad(report)} <= {"node03", "node02" if check == "launch_hostname" else "node03"}


# in brackets, as its own shell has the pattern in its command line
_LISTENER = "pgrep -f '[p]reflight.answer listen'"


@pytest.mark.slow
@pytest.mark.lab
def test_a_first_host_that_does_not_run_is_no_firewall(lab4: Any) -> None:
    reports: list[PreflightReport] = []
    asking = threading.Thread(target=lambda: reports.append(preflight(lab4)))
    asking.start()
    until_s = time.monotonic() + 60
    while not lab4.ssh("node01", f"kill -STOP $({_LISTENER}) 2>/dev/null && echo stopped || true"):
        assert time.monotonic() < until_s and asking.is_alive()
    try:
        asking.join(180)
    finally:
        lab4.ssh("node01", f"kill -KILL $({_LISTENER})")
    asking.join(60)
    ways = of(reports[0], "launch_way_to_first")
    assert {finding.status for finding in ways.values()} == {Status.UNKNOWN}, ways
    assert "node01 was too busy to answer" in ways["node02"].actual


@pytest.mark.slow
@pytest.mark.lab
def test_a_first_host_that_is_slow_to_listen_is_waited_for(lab4: Any) -> None:
    with changed(lab4, "node01", "cp -p ~/.bashrc /tmp/rc; sed -i '1i sleep 8' ~/.bashrc", "mv /tmp/rc ~/.bashrc"):
        report = preflight(lab4)
    assert {finding.status for finding in of(report, "launch_way_to_first").values()} == {Status.OK}


@pytest.mark.lab
def test_the_interface_is_chosen_by_its_network(lab4: Any) -> None:
    network = ipaddress.ip_network(f"{lab4.status['hosts'][0]['address']}/16", strict=False)
    report = preflight(lab4, interface=str(network))
    assert bad(report) == set() and len(report.candidates) == 4
    nowhere = preflight(lab4, interface="203.0.113.0/24")
    actual = of(nowhere, "launch_interface")["node03"].actual
    assert actual == "no address in 203.0.113.0/24 there; there are: eth0"


@pytest.mark.lab
def test_a_launcher_that_differs_is_found(lab4: Any) -> None:
    everywhere = "printf '#!/bin/sh\\n' > /tmp/l; chmod +x /tmp/l"
    for host in lab4.hosts:
        lab4.ssh(host, everywhere)
    with changed(lab4, "node04", "echo >> /tmp/l", "true"):
        report = preflight(lab4, launcher="/tmp/l")
    assert bad(report) == {("node04", "launch_script_version", "failed")}
