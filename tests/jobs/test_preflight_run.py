"""Preflight over several hosts: one look each, what was heard put together, the way to the first tried."""

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.checks.launch.candidate import REACHABLE, WAY_TO_FIRST, Candidate
from nodectl.facts.job import JobAddress, RdmaDevices
from nodectl.facts.network import Nic
from nodectl.jobs.preflight import JobNeeds, PreflightReport, passing, run_preflight, with_best_interface
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.transport.base import OnOutput
from nodectl.transport.inventory.read import Inventory
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


def test_a_dead_host_is_unknown_and_the_others_are_still_judged(tmp_path: Path) -> None:
    report = run_preflight(Here(tmp_path, dead=["b"]), [A, B], NEEDS, forks=4)
    assert {finding for finding in bad(report) if finding[0] == "b"} == {("b", "launch_reachable", "unknown")}
    assert of(report, "launch_script")["a"].status is Status.OK
    assert (of(report, "launch_reachable")["b"].actual, of(report, "launch_reachable")["b"].remedy) == (
        "no route",
        "plug it in",
    )
    assert list(report.candidates) == ["a"]


def test_clocks_are_compared_by_what_arrives(tmp_path: Path) -> None:
    def late(host: str, line: bytes) -> bytes:
        words = line.split()
        if host == "b" and words[:1] == [b"nodectl-collect/2"]:
            words[1] = b"%.3f" % (float(words[1]) + 300)
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


def nic(name: str, address: str, speed: int | None) -> Nic:
    return Nic(name, "UP", 9000, None, (address,), speed, carrier=True)


@pytest.mark.parametrize(
    ("nics", "wanted"),
    [
        ({"eth0": ("192.168.0.{}/24", 1000), "eth1": ("10.2.0.{}/24", 100_000)}, "eth1"),
        ({"eth0": ("192.168.0.{}/24", 1000), "docker0": ("172.17.0.1/16", 100_000)}, "eth0"),
        ({"eth0": ("192.168.0.{}/24", 1000), "eth1": ("10.2.{}.1/24", 100_000)}, "eth0"),
    ],
)
def test_the_fast_network_that_all_share_is_taken_and_nothing_made(
    nics: dict[str, tuple[str, int | None]], wanted: str
) -> None:
    candidates = [
        Candidate(
            f"n{number}",
            {
                "rdma_devices": RdmaDevices(()),
                "job_address": JobAddress(f"192.168.0.{number}", "192.168.0.0/24", "eth0", 1500, True, ("eth0",)),
                "nics": {name: nic(name, place.format(number), speed) for name, (place, speed) in nics.items()},
            },
            None,
            needs=NEEDS,
            hosts=2,
        )
        for number in (1, 2)
    ]
    hosts = [Host(f"n{number}", f"192.168.0.{number}") for number in (1, 2)]
    found = with_best_interface(hosts, candidates)
    assert [each.address.interface for each in found] == [wanted, wanted]
    if wanted == "eth1":
        assert (found[1].address.address, found[1].address.network, found[1].address.mtu) == (
            "10.2.0.2",
            "10.2.0.0/24",
            9000,
        )
    named = [replace(each, needs=replace(NEEDS, interface="eth0")) for each in candidates]
    assert [each.address.interface for each in with_best_interface(hosts, named)] == ["eth0", "eth0"]


FOUR = [Host(name, name) for name in ("gpu01", "gpu02", "gpu03", "gpu04")]


def fault_of(host: str, check: str, status: Status = Status.FAILED) -> Finding:
    return Finding(host, check, status)


def left_of(*findings: Finding) -> list[str]:
    return [host.name for host in passing(FOUR, findings)]


def test_hosts_with_a_fault_are_left_out_and_warnings_are_none() -> None:
    assert left_of(fault_of("gpu02", REACHABLE.id), fault_of("gpu03", "disk", Status.WARNING)) == [
        "gpu01",
        "gpu03",
        "gpu04",
    ]
    assert left_of(fault_of("gpu04", "gpus", Status.UNKNOWN)) == ["gpu01", "gpu02", "gpu03"]


def test_where_most_find_no_way_to_the_first_host_that_one_is_at_fault() -> None:
    assert left_of(fault_of("gpu02", WAY_TO_FIRST.id), fault_of("gpu04", WAY_TO_FIRST.id)) == [
        "gpu02",
        "gpu03",
        "gpu04",
    ]
    assert left_of(fault_of("gpu02", WAY_TO_FIRST.id)) == ["gpu01", "gpu03", "gpu04"]
