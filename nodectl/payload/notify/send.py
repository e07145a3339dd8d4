"""The sender of one receiver: delivers its messages in their order, and tries again until they are too old.

Each receiver has a process of its own, so that one that is slow or gone delays no other. It ends when nothing waits,
or with the queue's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from typing import Iterator, List

from .deliver import Outcome, deliver
from .queue import OVER, TO, Queue

OLDEST_S = 24 * 3600.0
LEAST_TRIES, MOST_TRIES = 20, 3000  # whatever the clock says, as after a day without power
_FIRST_S, _LONGEST_S, _LONGEST_ASKED_S = 1.0, 60.0, 3600.0
_SLICE_S = 1.0


def main(argv: List[str]) -> int:
    """Deliver: `QUEUE RECEIVER`; of several senders of a receiver all but one end at once."""
    queue, name = Queue(argv[0]), argv[1]
    with contextlib.suppress(OSError):  # it may lead a session already
        os.setsid()
    os.umask(0o077)
    with contextlib.suppress(FileNotFoundError):  # the queue was removed
        while _drain(queue, name):
            pass
        if os.path.exists(queue.at(OVER)):
            queue.rest()
    return 0


def _drain(queue: Queue, name: str) -> bool:
    """Deliver what waits; return whether more came after the last look, when another sender had left it to this one."""
    with _alone(queue, name) as alone:
        while alone and (waiting := queue.waiting(name)):
            _settle(queue, name, waiting[0])
    return alone and bool(queue.waiting(name))


@contextlib.contextmanager
def _alone(queue: Queue, name: str) -> Iterator[bool]:
    """Hold the receiver's lock, if no other sender does."""
    with open(queue.at(TO, name, "lock"), "a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _settle(queue: Queue, name: str, file_name: str) -> None:
    """Try a message until it is delivered or given up."""
    receiver = next((one for one in queue.settings()["receivers"] if one["name"] == name), None)
    while receiver is not None and (message := queue.read(name, file_name)):
        outcome = deliver(receiver, message["event"])
        if outcome.delivered:
            return queue.done(name, file_name)
        message.update({"tries": message["tries"] + 1, "why": outcome.why})
        is_old = time.time() - message["put"] > OLDEST_S and message["tries"] >= LEAST_TRIES
        if not outcome.again or message["tries"] >= MOST_TRIES or is_old:
            return queue.give_up(name, file_name, message)
        queue.note_try(name, file_name, message)
        _wait(queue, pause_s(message["tries"], outcome))
    return queue.give_up(name, file_name, {"why": "damaged, or its receiver is no more"})


def pause_s(tries: int, outcome: Outcome) -> float:
    """Return the seconds to the next try: 1, 2, 4 … 60 less up to half by chance, and what the receiver asks for."""
    longest = min(_LONGEST_S, _FIRST_S * 2.0 ** (min(tries, 20) - 1))
    return max(longest * random.uniform(0.5, 1.0), min(outcome.after_s, _LONGEST_ASKED_S))  # noqa: S311 - no secret


def _wait(queue: Queue, wait_s: float) -> None:
    """Sleep; FileNotFoundError soon after the queue's folder has gone."""
    ends_s = time.monotonic() + wait_s
    while (left_s := ends_s - time.monotonic()) > 0:
        time.sleep(min(_SLICE_S, left_s))
        os.stat(queue.path)
