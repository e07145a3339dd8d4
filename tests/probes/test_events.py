"""A payload program that could not be run: the reason and the remedy."""

import pytest

from nodectl.model.result import CommandResult, Outcome
from nodectl.probes.events import Events, failure
from nodectl.transport.payload import INSTALL_PYTHON


@pytest.mark.parametrize(("status", "remedy"), [(127, INSTALL_PYTHON), (1, "")])
def test_a_python_that_starts_nothing_is_to_be_installed(status: int, remedy: str) -> None:
    words = "pyenv: python3: command not found"
    done = CommandResult("n1", ("python3",), Outcome.RAN, status, "", words, 0.1)
    events = Events()
    events.add("stderr", words.encode())
    assert failure(done, events) == (words, remedy)
