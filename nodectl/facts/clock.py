"""The host's clock against ours."""

from nodectl.facts.base import Fact, UnknownError
from nodectl.model.facts import Clock
from nodectl.model.recording import Recording


def _read(recording: Recording) -> Clock:
    if recording.clock_offset_s is None or recording.clock_error_s is None:
        raise UnknownError("nobody compared the clocks")
    return Clock(round(recording.clock_offset_s, 4), round(recording.clock_error_s, 4))


FACT = Fact("time", lambda venv: (), _read)
