"""What Slurm is told of a node: a bounded reason of plain characters, and never anything where another drained it."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from nodectl.errors import UsageError
from nodectl.health.slurm import drain_reason, refuse_other_nodes, update_node
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.transport.base import Transport

OWN = Host("n1", "n1", connection="local")


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


class Scontrol:
    """Answers as scontrol does, and notes what it was asked to change."""

    def __init__(self, state: str, reason: str = "") -> None:
        self.line = f"NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=1 {reason}\n"
        self.updates: list[Sequence[str]] = []

    def run(self, host: Host, argv: Sequence[str], **_: Any) -> CommandResult:
        if argv[2] == "update":
            self.updates.append(argv[3:])
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, self.line, "", 0.1)


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
        ("IDLE+DRAIN", "Reason=its fan: State=bad [bob@2026-11-23T05:24:58]", "full", True, None),
    ],
)
def test_who_drained_a_node_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, state: str, reason: str, actual: str, resume: bool, update: Sequence[str] | None
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    scontrol = Scontrol(state, reason)
    findings = [failed("disk", actual)] if actual else []
    said = update_node(cast("Transport", scontrol), OWN, findings, resume=resume)
    assert [tuple(args) for args in scontrol.updates] == ([update] if update else [])
    assert bool(said) == (bool(update) or ("fan" in reason and bool(actual)))


def test_only_a_node_itself_may_drain_itself() -> None:
    refuse_other_nodes([OWN])
    for hosts in ([OWN, OWN], [Host("n1", "n1")]):
        with pytest.raises(UsageError, match="own look"):
            refuse_other_nodes(hosts)
