"""What Slurm is told of a node: a bounded reason of plain characters, and never anything where another drained it."""

from collections.abc import Sequence

import pytest

from nodectl.errors import UsageError
from nodectl.health.slurm import drain_reason, node_name, read_node, report
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status


def failed(check: str, actual: str, status: Status = Status.FAILED) -> Finding:
    return Finding("n1", check, status, actual=actual)


def test_a_reason_is_one_bounded_line_of_plain_characters() -> None:
    assert drain_reason([failed("disk", "full", Status.WARNING), failed("xid", "79", Status.UNKNOWN)]) == ""
    assert drain_reason([failed("slurm_state", "DOWN")]) == ""
    hostile = 'a"b`$(id)`\n\x1b[31m\u202e é;'
    reason = drain_reason([failed("xid", hostile), failed("disk", "full")])
    assert reason == "nodectl: xid: a'b`$(id)` ?[31m? ?; (and 1 more)"
    long = drain_reason([failed("xid", "x" * 5000), *[failed("disk", "full")] * 9])
    assert len(long) == 200 and long.endswith("... (and 9 more)")


def test_a_reason_that_names_a_state_hides_no_drain() -> None:
    assert read_node("NodeName=a State=IDLE+DRAIN CPUTot=1 Reason=ticket 7: State=bad after swap [bob@now]").drained


class Scontrol:
    """Answers as scontrol does, and notes what it was asked to change."""

    def __init__(self, state: str, reason: str = "") -> None:
        self.line = f"NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=1 {reason}\n"
        self.updates: list[Sequence[str]] = []

    def __call__(self, *args: str) -> str:
        if args[0] == "update":
            self.updates.append(args[1:])
        return self.line


REASON = "Reason=nodectl: disk: full [root@2026-11-23T05:24:58] Comment=x"


@pytest.mark.parametrize(
    ("state", "reason", "actual", "resume", "update"),
    [
        ("IDLE", "", "full", False, ("NodeName=n1", "State=DRAIN", "Reason=nodectl: disk: full")),
        ("IDLE", "", "", True, None),
        ("IDLE+DRAIN", REASON, "full", True, None),
        ("IDLE+DRAIN", REASON, "read-only", True, ("NodeName=n1", "State=DRAIN", "Reason=nodectl: disk: read-only")),
        ("IDLE+DRAIN", REASON, "", True, ("NodeName=n1", "State=RESUME")),
        ("IDLE+DRAIN", REASON, "", False, None),
        ("IDLE+DRAIN", "Reason=a fan [bob@2026-11-23T05:24:58]", "full", True, None),
        ("IDLE+DRAIN", "Reason=a fan [bob@2026-11-23T05:24:58]", "", True, None),
    ],
)
def test_who_drained_a_node_gives_it_back(
    state: str, reason: str, actual: str, resume: bool, update: Sequence[str] | None
) -> None:
    scontrol = Scontrol(state, reason)
    said = report("n1", [failed("disk", actual)] if actual else [], scontrol, resume=resume)
    assert [tuple(args) for args in scontrol.updates] == ([update] if update else [])
    assert bool(said) == (bool(update) or ("fan" in reason and bool(actual)))


def test_only_a_node_itself_may_drain_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Host("n1", "n1", connection="local")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-7")
    assert node_name([own]) == "gpu-7"
    for name in ("ALL,", "n[1-9]", "a b", "--x"):
        monkeypatch.setenv("SLURMD_NODENAME", name)
        with pytest.raises(UsageError):
            node_name([own])
    for hosts in ([own, own], [Host("n1", "n1")]):
        with pytest.raises(UsageError, match="own look"):
            node_name(hosts)
