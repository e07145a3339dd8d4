"""A measurement in turns: before each the operator's side changes something, and says by SIGUSR1 that it may begin."""

import os
import signal

from ..common.events import say

# what is changed meanwhile is changed in a moment
WAIT_S = 60.0


class TurnError(Exception):
    """Nobody said in time that the turn may begin."""


def expect() -> None:
    """Before any thread is started: the signal waits until it is asked for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def wait(number: int) -> None:
    """Say that this turn could begin, and wait until it may."""
    say(event="turn", number=number, pid=os.getpid())
    if signal.sigtimedwait({signal.SIGUSR1}, WAIT_S) is None:
        raise TurnError("nobody said within %.0f s that turn %d may begin" % (WAIT_S, number))
