"""One measurement under several settings in turn, so that what drifts meanwhile touches all of them alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from nodectl.probes.events import Event
from nodectl.probes.gang import Member
from nodectl.transport.base import Transport

_KILL_S = 10.0

T = TypeVar("T")


class Turns:
    """Turn `n` is measured under `settings[n % len(settings)]`; use it for one gang after the other."""

    def __init__(self, transport: Transport, settings: Sequence[Callable[[], None]]) -> None:
        self.settings = tuple(settings)
        self._transport = transport
        self._error: BaseException | None = None

    def heard(self, member: Member, event: Event) -> None:
        """Give to `gang.play`: put the setting on, then let the one who waits go on."""
        if event["event"] == "turn":
            # not in the thread that reads what the host says
            threading.Thread(target=self._go, args=(member, event), daemon=True).start()

    def check(self) -> None:
        """Raise what went wrong with a setting."""
        if self._error is not None:
            raise self._error

    def _go(self, member: Member, event: Event) -> None:
        signal = "USR1"
        try:
            self.settings[int(event["number"]) % len(self.settings)]()
        except Exception as error:  # raised by `check`, in the thread that waits for the gang
            self._error, signal = error, "TERM"
        self._transport.run(member.host, ["kill", "-s", signal, str(int(event["pid"]))], timeout_s=_KILL_S)


def groups_of(turns: Turns | None) -> int:
    """How many measurements come out of one."""
    return len(turns.settings) if turns else 1


def dealt(values: Sequence[T], groups: int) -> list[list[T]]:
    """The values of each setting, in the settings' order."""
    return [list(values[number::groups]) for number in range(groups)]
