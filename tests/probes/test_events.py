"""A payload program that could not be run: the reason and the remedy."""

import pytest

from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common import frames
from nodectl.probes.events import Events, failure
from nodectl.transport.payload import INSTALL_PYTHON


@pytest.mark.parametrize(("status", "remedy"), [(127, INSTALL_PYTHON), (1, "")])
def test_a_python_that_starts_nothing_is_to_be_installed(status: int, remedy: str) -> None:
    words = "pyenv: python3: command not found"
    done = CommandResult("n1", ("python3",), Outcome.RAN, status, "", words, 0.1)
    events = Events()
    events.add("stderr", words.encode())
    assert failure(done, events) == (words, remedy)


def test_what_a_node_prints_without_end_takes_bounded_memory() -> None:
    events = Events()
    for _ in range(64):
        events.add("stdout", b"x" * (1 << 20))
        events.add("stdout", frames.encode({"event": "row", "text": "y" * (1 << 20)}))
    assert len(events.of("row")) < 16 and "longer than 16 MiB" in events.complaint()
    events.add("stderr", b"z" * (1 << 20))
    assert len(events.complaint()) <= 4096
