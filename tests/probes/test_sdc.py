"""The sdc probe: the vote over units and hosts, and how it is told."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.probes.device.sdc import PROBE as SDC
from nodectl.probes.device.sdc import Device, vote
from tests.probes.device_answers import devices, measured_hosts, probe, told
from tests.probes.scripted import HOSTS


def units(*results: str, kind: str = "H200", hosts: int = 0) -> list[Device]:
    """A unit a letter, of a host each, or of so many hosts in turn; `ab` differs from itself."""
    found = []
    for number, letters in enumerate(results):
        host = number % hosts if hosts else number
        found.append(Device(f"h{host}", f"GPU {number}", kind, {"integers": dict.fromkeys(letters, 3)}))
    return found


@pytest.mark.parametrize(
    ("given", "unstable", "odd", "doubts"),
    [
        (units("a"), [], [], 0),
        (units("a", "b"), [], [], 1),
        (units("a", "a", "b"), [], ["h2"], 0),
        (units("a", "b", "a", "a", "c"), [], ["h1", "h4"], 0),
        (units("a", "b", "c"), [], [], 1),
        (units("ab", "a", "a"), ["h0"], [], 0),
        (units("a", "b", "a", "b", "a", "b", hosts=2), [], [], 1),
        (units("a", "a", "a") + units("b", kind="H100"), [], [], 0),
    ],
)
def test_votes(given: Sequence[Device], unstable: list[str], odd: list[str], doubts: int) -> None:
    found = vote(given)
    assert sorted(host for host, _ in found.unstable) == unstable
    assert sorted(host for host, _ in found.odd) == odd and len(found.doubts) == doubts


GOOD = {"integers": {"1111": 9}, "product bf16": {"2222": 9}}


def computed(gpu: int | None, digests: dict[str, dict[str, int]], cpu: int = 0) -> dict[str, Any]:
    where = {"gpu": gpu} if gpu is not None else {"gpu": None, "cpu": cpu}
    return {"event": "computed", "digests": digests, "began": 1.0, "ended": 2.0, **where}


def odd(digest: str = "6666") -> dict[str, dict[str, int]]:
    return {**GOOD, "product bf16": {digest: 9}}


def run(monkeypatch: pytest.MonkeyPatch, bad: dict[tuple[str, int], Any], hosts: Sequence[Host] = HOSTS) -> Any:
    """Two GPUs a host; `bad` by host and GPU: digests, or those of the first and second time."""

    def says(host: str, number: int) -> list[dict[str, Any]]:
        found = [devices(2)]
        for gpu in range(2):
            own = bad.get((host, gpu), GOOD)
            found.append(computed(gpu, own[min(number, len(own) - 1)] if isinstance(own, list) else own))
        return found

    return probe(monkeypatch, SDC, says, hosts=hosts, gpus=2)


def test_all_alike_is_none_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = run(monkeypatch, {})
    assert result.findings == () and len(measured_hosts(asked)) == 4
    one = result.measurements[0]
    assert (one.value, one.unit, one.direction) == (0.0, "wrong results", "node01 GPU 0")
    assert one.conditions["compared_with"] == 7 and one.conditions["rounds"] == 9
    assert len({each.conditions["digest"] for each in result.measurements}) == 1


def test_the_odd_one_out_is_named_after_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = run(monkeypatch, {("node03", 1): odd()})
    assert told(result) == [("node03", "failed", "GPU 1")] and measured_hosts(asked)[4:] == ["node03"]
    (finding,) = result.findings
    assert finding.actual == "differs from most others of its kind in product bf16; a second time, too"
    assert finding.kind == "host" and finding.action == "drain"
    assert [each.value for each in result.measurements if each.direction == "node03 GPU 1"] == [1.0]


def test_who_differs_from_himself_is_named_even_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = {**GOOD, "integers": {"1111": 8, "7777": 1}}
    result, _ = run(monkeypatch, {("node01", 0): twice}, hosts=HOSTS[:1])
    assert told(result) == [("node01", "failed", "GPU 0")]
    assert result.findings[0].actual.startswith("differs from itself in integers")


def test_with_two_it_says_that_it_cannot_tell_which(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {("node02", 0): odd(), ("node02", 1): odd()}
    result, _ = run(monkeypatch, bad, hosts=HOSTS[:2])
    (finding,) = result.findings
    assert finding.status.value == "failed" and finding.kind == "" and finding.hosts == ("node01", "node02")
    assert finding.subject == "node01 (GPU 0, GPU 1) against node02 (GPU 0, GPU 1)"
    assert "it cannot be told which of them is wrong" in finding.actual
    assert all(each.conditions["unclear"] for each in result.measurements)
