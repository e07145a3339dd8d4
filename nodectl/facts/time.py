"""The host's clock against ours."""

from dataclasses import dataclass

from nodectl.facts.base import Fact, UnknownError
from nodectl.model.recording import Recording

# below this the offset that a round trip can show is its own delay
_CLOSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Clock:
    """Host's clock minus ours; the true offset is within `error_s` above `offset_s`."""

    offset_s: float
    error_s: float


def _read(recording: Recording) -> Clock:
    if recording.clock_offset_s is None or recording.clock_error_s is None:
        raise UnknownError("nobody compared the clocks")
    return Clock(round(recording.clock_offset_s, 4), round(recording.clock_error_s, 4))


def _words(clock: Clock) -> str:
    close = abs(clock.offset_s) < _CLOSE_S
    return f"within {_CLOSE_S:g} s of ours" if close else f"{clock.offset_s:+.1f} s off ours"


# every round trip compares the clocks: it needs no command
FACT = Fact("time", (), _read, _words, row=820)
