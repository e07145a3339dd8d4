"""Why a payload program failed: in its own words, or by the signal that ended it."""

from typing import Any

import pytest

from nodectl.model.result import CommandResult, Outcome
from nodectl.probes.events import Events, failure


def told(status: int | None, printed: bytes, outcome: Outcome = Outcome.RAN, **given: Any) -> tuple[str, str]:
    events = Events()
    events.add("stderr", printed)
    return failure(CommandResult("one", (), outcome, status, "", "", 0.0, **given), events)


WARNING = b"[W1123 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3\n"


@pytest.mark.parametrize(
    ("status", "printed", "said", "remedy"),
    [
        # a warning of torch is not why
        (137, WARNING, "was ended by SIGKILL", "the kernel does so where memory is short"),
        (134, b"what(): out of order\n", "was ended by SIGABRT: what(): out of order", ""),
        (135, b"", "was ended by SIGBUS", ""),
        (1, b"torch: no\n", "torch: no", ""),
        (2, b"", "exit status 2", ""),
        (255, b"gone\n", "gone", ""),
    ],
)
def test_a_signal_is_the_reason(status: int, printed: bytes, said: str, remedy: str) -> None:
    reason, do = told(status, printed)
    assert reason == said and do.startswith(remedy)
