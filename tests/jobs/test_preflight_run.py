"""Preflight over several hosts: one look each, what was heard put together, the way to the first tried."""

import ipaddress
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.checks.launch.candidate import REACHABLE, WAY_TO_FIRST, Candidate
from nodectl.cli import jobs as cli_jobs
from nodectl.cli.launch import _follow
from nodectl.facts.job import JobAddress, RdmaDevices
from nodectl.facts.network import Nic
from nodectl.jobs.plan import NodeCount, fewer
from nodectl.jobs.preflight import JobNeeds, PreflightReport, _try_way, passing, run_preflight, with_best_interface
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
        (
            "cp /etc/hosts /root/hosts && (echo 127.0.1.1 node03 && grep -v node03 /root/hosts) > /etc/hosts",
            "cp /root/hosts /etc/hosts; rm /root/hosts",
            "launch_own_name",
            "warning",
        ),
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
def test_a_first_host_that_does_not_run_is_no_firewall(lab4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped when it listens, and before anybody tries the way to it."""
    reports: list[PreflightReport] = []
    tried, stopping = _try_way, threading.Lock()

    def try_way(*args: Any) -> Finding:
        with stopping:
            lab4.ssh("node01", f"kill -STOP $({_LISTENER})")
        return tried(*args)

    monkeypatch.setattr("nodectl.jobs.preflight._try_way", try_way)
    asking = threading.Thread(target=lambda: reports.append(preflight(lab4)))
    asking.start()
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


FAKE_SMI = """#!/bin/sh
case "$*" in
-L) echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)' ;;
*compute-apps*) echo '1, 20480, /usr/bin/python3' ;;
*query-gpu*) printf 'index, name, uuid, pci.bus_id, memory.total [MiB], driver_version, vbios_version\\n'
  echo "0, NVIDIA H100 80GB HBM3, GPU-1, 00000000:0F:00.0, 81559 MiB, $(cat /usr/local/bin/driver), 96.00.74.00.01" ;;
*) exit 9 ;;
esac
"""


@contextmanager
def smi(lab: Any, text: str, driver: str = "580.65.06") -> Iterator[None]:
    """Every host has an nvidia-smi that says this."""
    put = f"printf %s {shlex.quote(text)} > /usr/local/bin/nvidia-smi; echo {driver} > /usr/local/bin/driver"
    for host in lab.hosts:
        lab.ssh(host, f"{put}; chmod 755 /usr/local/bin/nvidia-smi")
    try:
        yield
    finally:
        for host in lab.hosts:
            lab.ssh(host, "rm -f /usr/local/bin/nvidia-smi /usr/local/bin/driver")


@pytest.mark.lab
def test_gpus_in_use_and_a_driver_of_another_version(lab4: Any) -> None:
    with smi(lab4, FAKE_SMI):
        lab4.ssh("node03", "echo 570.1 > /usr/local/bin/driver")
        report = preflight(lab4)
    assert ("node03", "launch_driver", "failed") in bad(report)
    assert of(report, "launch_driver")["node01"].status is Status.OK
    assert {one.status for one in of(report, "launch_gpu_users").values()} == {Status.WARNING}
    assert "pid 1 (python3, root), 20480 MiB" in of(report, "launch_gpu_users")["node01"].actual


@pytest.mark.lab
@pytest.mark.slow
def test_a_driver_that_hangs_is_unknown_and_no_host_without_gpus(lab4: Any) -> None:
    with smi(lab4, "#!/bin/sh\nexec sleep 1000\n"):
        started = time.monotonic()
        report = preflight(lab4)
    assert {one.status for one in of(report, "launch_gpus").values()} == {Status.UNKNOWN}
    assert time.monotonic() - started < 120


@pytest.mark.lab
@pytest.mark.slow
def test_a_bridge_of_a_container_engine_is_taken_for_no_network(lab4: Any) -> None:
    make = "ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up"
    for host in lab4.hosts:
        lab4.ssh(host, make)
    try:
        report = preflight(lab4)
        assert {each.address.interface for each in report.candidates.values()} == {"eth0"} and bad(report) == set()
        asked = preflight(lab4, interface="docker0")
    finally:
        for host in lab4.hosts:
            lab4.ssh(host, "ip link del docker0")
    assert {(host, "launch_network", "failed") for host in lab4.hosts} <= bad(asked)
    assert "172.17.0.1 of docker0, as on node02" in of(asked, "launch_network")["node01"].actual


@pytest.mark.lab
@pytest.mark.slow
def test_two_networks_and_taken_ports(lab4: Any) -> None:
    for number, host in enumerate(lab4.hosts, 1):
        net = "10.97.1" if host == "node03" else "10.97.0"
        lab4.ssh(host, f"ip addr add {net}.{number}/24 dev eth0")
    holder = "import socket, time; s = socket.socket(); s.bind(('', 23421)); s.listen(); time.sleep(60)"
    lab4.ssh("node02", f"setsid python3 -c {shlex.quote(holder)} > /dev/null 2>&1 < /dev/null & sleep 1")
    try:
        report = preflight(lab4, interface="10.97.0.0/16")
    finally:
        for host in lab4.hosts:
            lab4.ssh(host, "ip addr show dev eth0 | awk '/10.97/ {print $2}' | xargs -n1 -I@ ip addr del @ dev eth0")
        lab4.ssh("node02", "kill $(pgrep -f '23421')")
    expected = {("node03", "launch_network", "warning"), ("node02", "launch_ports", "failed")}
    assert expected <= bad(report), [one for one in report.findings if one.status is not Status.OK]


def nic(name: str, address: str, speed: int | None) -> Nic:
    return Nic(name, "UP", 9000, None, (address,), speed, carrier=True)


@pytest.mark.parametrize(
    ("nics", "wanted"),
    [
        ({"eth0": ("192.168.0.{}/24", 1000), "eth1": ("10.2.0.{}/24", 100_000)}, "eth1"),
        ({"eth0": ("192.168.0.{}/24", 1000), "docker0": ("172.17.0.1/16", 100_000)}, "eth0"),
        ({"eth0": ("192.168.0.{}/24", 1000), "veth12": ("10.2.0.{}/24", 100_000)}, "eth0"),
        ({"eth0": ("192.168.0.{}/24", 1000), "vpn": ("10.2.0.{}/24", None)}, "eth0"),
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


def test_with_fewer_hosts_an_attempt_takes_no_more_than_there_are() -> None:
    assert fewer(NodeCount(2, 4), 3) == NodeCount(2, 3)
    assert fewer(NodeCount(2, 2), 3) == NodeCount(2, 2)
    assert fewer(None, 3) is None


def test_hosts_that_were_left_out_are_not_followed_nor_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(cli_jobs, "follow_output", lambda app, hosts, job_id: asked.update(followed=hosts) or {})
    monkeypatch.setattr(cli_jobs, "conclude", lambda app, job_id, gone, more: asked.update(gone=gone) or 0)
    app: Any = SimpleNamespace(hosts=FOUR)
    assert _follow(app, FOUR[:3], "20261121-040000-ab12", traced=False) == 0
    assert asked == {"followed": FOUR[:3], "gone": {"gpu04": "it is not in the job"}}
