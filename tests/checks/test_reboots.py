"""A reboot clears a fault; the same one after two reboots is the hardware's."""

import pytest

from nodectl.checks.counters import Previous
from nodectl.checks.judge import REBOOTS_LIMIT, known_faults, with_history
from nodectl.model.finding import Finding
from nodectl.model.status import Status

XID = Finding("n1", "xid", Status.WARNING, "GPU 0000:07:00.0 79", "reboot", "none", "Xid 79", "reboot it")


def after(found: Finding, boots: list[str | None], reboots: float = REBOOTS_LIMIT.value) -> Finding:
    """The finding of the last of these boots, one look a boot."""
    faults: dict[str, dict[str, float]] = {}
    for n, boot in enumerate(boots):
        faults = known_faults([found], faults, Previous(1000.0 + n, boot))
    return with_history([found], faults, reboots)[0]


@pytest.mark.parametrize(
    ("boots", "action"),
    [
        (["a"], "reboot"),
        (["a", "a", "a", "a"], "reboot"),
        (["a", "b"], "reboot"),
        (["a", "b", "c"], "replace"),
        (["a", "a", "b", "c"], "replace"),
        ([None, None, None], "reboot"),
    ],
)
def test_boots(boots: list[str | None], action: str) -> None:
    last = after(XID, boots)
    assert last.action == action
    if action == "replace":
        assert last.status is Status.FAILED and "after 2 reboots" in last.evidence and "replaced" in last.remedy


@pytest.mark.parametrize(
    "found",
    [
        Finding("n1", "disk", Status.WARNING, "/", "none", "x", "y", "z"),
        Finding("n1", "oom", Status.WARNING, "", "restart job", "x", "y", "z"),
        Finding("n1", "xid", Status.UNKNOWN, "", "reboot", "x", "y", "z"),
    ],
)
def test_what_no_reboot_cures_is_as_it_was(found: Finding) -> None:
    assert after(found, ["a", "b", "c", "d"]) == found
