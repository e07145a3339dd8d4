"""A host that goes away in the middle: not waited for, not asked again, and one finding for all that it explains."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.payload.common.frames import encode
from nodectl.probes import duet, lost
from nodectl.probes.base import ProbeOptions, ProbeResult, host_finding
from nodectl.probes.duet import Duet, play
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.lost import Loss, Watched, said_once
from nodectl.probes.series import run_probes
from tests.probes.declared import wanted_of
from tests.probes.scripted import HOSTS
from tests.probes.scripted import play as scripted

CUT = "node03"


class Hosts:
    """`cut` never answer; what is asked is kept."""

    def __init__(self, *cut: str) -> None:
        self.cut, self.asked, self.over = set(cut), list[tuple[str, str]](), threading.Event()

    def run(self, host: Host, argv: Sequence[str], *, timeout_s: float | None, **_: Any) -> CommandResult:
        self.asked.append((host.name, argv[0]))
        if host.name in self.cut:
            self.over.wait(30 if timeout_s is None else min(30, timeout_s))
            return CommandResult(host.name, tuple(argv), Outcome.TIMEOUT, None, "", "", 0.0, "no exit in time")
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, "", "", 0.0)

    def close(self) -> None:
        self.over.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost, "_SILENT_S", 0.3)
    monkeypatch.setattr(lost, "_ANSWER_S", 0.2)
    monkeypatch.setattr(lost, "_POLL_S", 0.02)


def beating(*silent: str) -> dict[str, float]:
    now = time.monotonic()
    return {host.name: now - (100 if host.name in silent else 0) for host in HOSTS}


def watched(hosts: Any, *silent: str) -> Watched:
    return Watched(hosts, lambda: beating(*silent))


def test_a_silent_host_is_not_waited_for_and_not_asked_again() -> None:
    hosts = Hosts(CUT)
    transport = watched(hosts, CUT)
    began = time.monotonic()
    done = transport.run(HOSTS[2], ["sleep", "60"], timeout_s=60)
    assert done.outcome is Outcome.UNREACHABLE and time.monotonic() - began < 5
    asked = len(hosts.asked)
    assert transport.run(HOSTS[2], ["date"], timeout_s=60).outcome is Outcome.UNREACHABLE
    assert len(hosts.asked) == asked and "stopped answering" in transport.lost[CUT].reason
    assert transport.run(HOSTS[0], ["date"], timeout_s=60).ok
    hosts.close()


def test_a_host_that_is_only_busy_is_asked_and_waited_for() -> None:
    """It does not beat, but it answers."""

    class Busy(Hosts):
        def run(self, host: Host, argv: Sequence[str], **more: Any) -> CommandResult:
            if argv[0] == "work":
                time.sleep(1)
            return super().run(host, argv, **more)

    hosts = Busy()
    transport = watched(hosts, CUT)
    assert transport.run(HOSTS[2], ["work"], timeout_s=60).ok and transport.lost == {}
    # not at every look
    assert 1 <= hosts.asked.count((CUT, "true")) <= 4


def _seen(host: str, subject: str = "") -> Finding:
    return Finding(host, "nccl", Status.FAILED, subject, action="none", actual="reset by peer", hosts=(host,))


def test_what_others_saw_of_a_collective_that_lost_a_host_is_its_evidence() -> None:
    wrong = _seen("node01", "all_reduce 1048576 B")
    result = ProbeResult(findings=(_seen("node01"), _seen("node02"), wrong))
    said = said_once("nccl", result, {CUT: Loss("refused")}, ())
    assert [(finding.host, finding.subject) for finding in said.findings] == [(CUT, "lost"), ("node01", wrong.subject)]
    # somebody else is to blame as well: nothing is taken for what the lost one did
    other = host_finding("nccl", "node02", Status.FAILED, "its program ended by itself")
    both = said_once("nccl", ProbeResult(findings=(_seen("node01"), other)), {CUT: Loss("refused")}, ())
    assert [finding.host for finding in both.findings] == [CUT, "node01", "node02"]


def test_several_probes_say_a_lost_host_once() -> None:
    def run(transport: Any, hosts: Sequence[Host], _: ProbeOptions, __: Any) -> ProbeResult:
        done = [(host.name, transport.run(host, ["measure"], timeout_s=10)) for host in hosts]
        findings = [host_finding("x", name, Status.UNKNOWN, each.error) for name, each in done if not each.ok]
        return ProbeResult(findings=tuple(findings))

    class Away(Hosts):
        def run(self, host: Host, argv: Sequence[str], **more: Any) -> CommandResult:
            done = super().run(host, argv, **more)
            gone = CommandResult(host.name, (), Outcome.UNREACHABLE, None, "", "", 0.0, "no route to host")
            return gone if host.name == CUT else done

    hosts: Any = Away()
    wanted = [wanted_of(name, run) for name in ("tcp", "memory", "latency")]
    (finding,) = run_probes(hosts, HOSTS, wanted, None, lambda _: None).findings
    assert (finding.host, finding.check, finding.subject) == (CUT, "tcp", "lost")
    assert hosts.asked.count((CUT, "measure")) == 1


def test_a_client_does_not_wait_for_a_server_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    client_may_end = threading.Event()

    def payload(_: Any, host: Host, module: str, args: Sequence[str], *, on_output: Any, **__: Any) -> CommandResult:
        if args[0] == "serve":
            on_output("stdout", encode({"event": "listening", "port": 1, "pid": 7}))
            time.sleep(0.3)
            return CommandResult(host.name, (), Outcome.UNREACHABLE, None, "", "", 0.0, "it stopped answering")
        client_may_end.wait(20)
        return CommandResult(host.name, (), Outcome.RAN, 1, "", "", 0.0)

    fleet: Any = scripted(monkeypatch, lambda *_: pytest.fail("not asked"))
    monkeypatch.setattr("nodectl.probes.events.run_payload", payload)
    monkeypatch.setattr(duet, "_POLL_S", 0.05)
    ends = [Endpoint(host, host.address, "eth0", 1500, 1, "3", None, 0) for host in HOSTS[:2]]
    began = time.monotonic()
    played = play(fleet, (ends[0], ends[1]), Duet("probes.tcp", (), 0, False, 60.0))
    client_may_end.set()
    assert time.monotonic() - began < 5
    assert played.no_server is not None and played.no_server[:2] == (Status.UNKNOWN, "it stopped answering")
