"""Which nodes are taken from Slurm, by recorded words of scontrol 22.05 (but the states)."""

from __future__ import annotations

import pytest

from nodectl.errors import UsageError
from nodectl.jobs.slurm.login import Login
from nodectl.jobs.slurm.nodes import refuse_strange

NODE = "NodeName={} Arch=x86_64 CPUTot=2 State={} ThreadsPerCore=1 AllocTRES= ExtSensorsTemp=n/s Reason={}\n"
RESERVATION = "ReservationName=days StartTime=2026-11-28T12:13:23 Duration=02:00:00 Nodes=n[1-2] NodeCnt=2 CoreCnt=4\n"


class Scontrol(Login):
    """A login host that answers so."""

    said = ""

    def scontrol(self, *args: str, remedy: str = "") -> str:
        return RESERVATION if "reservation" in args else Scontrol.said


@pytest.mark.parametrize(
    ("state", "reservation", "words"),
    [
        ("IDLE+RESERVED", "days", ""),
        ("ALLOCATED", "", ""),
        ("IDLE+CLOUD+POWERED_DOWN", "", ""),
        ("IDLE~", "", ""),
        ("IDLE+DRAIN", "", r"n2 is IDLE\+DRAIN in Slurm \(a fan\): "),
        ("DOWN*", "", r"n2 is DOWN\* in Slurm \(a fan\): "),
        ("IDLE", "nights", r"n3: not in Slurm's reservation nights, which has n\[1-2\]"),
    ],
)
def test_a_node_that_slurm_cannot_give_is_refused_before_anything_waits(
    monkeypatch: pytest.MonkeyPatch, state: str, reservation: str, words: str
) -> None:
    reason = "a fan [root@2026-11-28T12:17:31]"
    monkeypatch.setattr(Scontrol, "said", NODE.format("n1", "IDLE", "") + NODE.format("n2", state, reason))
    login = Scontrol(None, None)  # type: ignore[arg-type] # neither is asked
    names = ["n1", "n2", *(["n3"] if reservation == "nights" else [])]
    if not words:
        refuse_strange(login, names, reservation)
        return
    with pytest.raises(UsageError, match=words) as refused:
        refuse_strange(login, names, reservation)
    assert "scontrol update " in refused.value.remedy
