"""Which hosts are refused and why, what --force makes of it, and that what was locked is let go."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from nodectl.model.status import Status
from nodectl.probes.locks import Holds, held
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import HOSTS, Answer, play

SMI = """\
==============NVSMI LOG==============

Timestamp                                 : Sat Nov 21 12:00:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555
"""
PROCESS = """\
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4711
            Type                          : {type}
            Name                          : /opt/other/train
            Used GPU Memory               : 900 MiB
"""
SLURM = "NodeName=gpu01 CPUTot=8 RealMemory=100 State={} Reason=none Version=23.11.4\n"
HELD = {"event": "held", "pid": 77, "jobs": []}
JOB = {"id": "train-7", "operator": "bob@laptop", "script": "train.py"}
BUSY = {"event": "busy", "operator": "alice@laptop", "what": "probe nccl", "since": 1_700_000_000.0, "jobs": []}


def entry(key: str, text: str, status: int = 0) -> Entry:
    return Entry(key, (key,), status, text, "", 0.1)


def recording(host: str, smi: tuple[str, int], slurm: tuple[str, int]) -> Recording:
    return Recording(host, {"nvidia-smi-q": entry("nvidia-smi-q", *smi), "slurm-node": entry("slurm-node", *slurm)})


def ask(
    monkeypatch: pytest.MonkeyPatch,
    *,
    answer: Answer | None = None,
    smi: tuple[str, int] = ("", 127),
    slurm: tuple[str, int] = ("", 127),
    force: bool = False,
    beside_work: bool = False,
) -> tuple[Holds, Any]:
    """The second host is as told; the first is free."""

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        assert module == "probes.locks" and "--what" in args
        return answer if answer is not None and host == "node02" else Answer([HELD], after_s=20)

    def collected(_: object, host: Host, __: object) -> Recording:
        other = host.name == "node02"
        return recording(host.name, smi if other else ("", 127), slurm if other else ("", 127))

    fleet = play(monkeypatch, answers)
    monkeypatch.setattr("nodectl.probes.locks.collect", collected)
    transport: Any = fleet
    with held(
        transport, HOSTS[:2], "probe tcp", forks=8, force=force, note=lambda _: None, beside_work=beside_work
    ) as holds:
        pass
    return holds, fleet


@pytest.mark.parametrize(
    ("given", "status", "subject", "told"),
    [
        ({"answer": Answer([BUSY], status=1)}, "failed", "nodectl", "alice@laptop for 'probe nccl' since 2023-11-14"),
        ({"answer": Answer([{**BUSY, "left": True}], status=1)}, "failed", "nodectl", "values of a trial"),
        (
            {"answer": Answer([{**HELD, "jobs": [JOB]}], after_s=20)},
            "failed",
            "job",
            "train-7 of bob@laptop (train.py)",
        ),
        ({"answer": Answer([{"event": "error", "text": "x"}], status=1)}, "unknown", "nodectl", "x"),
        ({"smi": (SMI + PROCESS.format(type="C"), 0)}, "failed", "gpu", "GPU 0: 4711 /opt/other/train"),
        ({"smi": ("", 124)}, "unknown", "gpu", "did not end in time"),
        ({"slurm": (SLURM.format("ALLOCATED"), 0)}, "failed", "slurm", "gpu01, ALLOCATED"),
        (
            {"slurm": ("slurm_load_node error: Unable to contact slurm controller", 1)},
            "unknown",
            "slurm",
            "cannot be told",
        ),
    ],
)
def test_who_works_there_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], status: str, subject: str, told: str
) -> None:
    holds, _ = ask(monkeypatch, **given)
    (finding,) = holds.findings
    assert (finding.host, finding.check, finding.status, finding.subject) == ("node02", "lock", status, subject)
    assert told in finding.actual and holds.refused
    beside, _ = ask(monkeypatch, **given, beside_work=True)
    assert bool(beside.findings) is (subject in ("nodectl", "job"))
    forced, _ = ask(monkeypatch, **given, force=True)
    if subject == "job":
        assert forced.refused and "jobs stop train-7" in finding.remedy and "--force" not in finding.remedy
    else:
        assert not forced.refused and [each.status for each in forced.findings] == [Status.WARNING]
        assert "--force" in finding.remedy


def test_what_was_locked_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fleet = ask(monkeypatch, answer=Answer([BUSY], status=1))
    assert fleet.killed == [("node01", "77")]


class TestForReal:
    """The payload on this machine."""

    A, B = Host("a", "127.0.0.1", connection="local"), Host("b", "127.0.0.1", connection="local")

    @pytest.fixture(autouse=True)
    def own_state(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setenv("NODECTL_LOCK_FOLDER", str(tmp_path))
        monkeypatch.setattr(
            "nodectl.probes.locks.collect", lambda _, host, __: recording(host.name, ("", 127), ("", 127))
        )

    def hold(self, what: str, *hosts: Host) -> Any:
        return held(LocalTransport(), hosts, what, forks=4, force=False, note=lambda _: None)

    def test_a_second_nodectl_is_refused_and_free_hosts_are_had_at_once(self) -> None:
        with self.hold("probe tcp", self.A) as first:
            assert first == Holds()
            with self.hold("probe memory", self.A) as second:
                assert second.refused
                assert "for 'probe tcp' since" in second.findings[0].actual
        with self.hold("tune", self.A) as third:
            assert third == Holds()

    def test_two_names_of_one_machine_do_not_lock_each_other_out(self) -> None:
        with self.hold("probe tcp", self.A, self.B) as holds:
            assert holds == Holds()
