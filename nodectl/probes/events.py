"""The JSON lines in which payload programs speak, read while they run."""

import json
import threading
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]


class Events:
    """Collects the events of one run; give `add` to Transport.run as `on_output`."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self.all: list[Event] = []
        self._on_event = on_event
        self._rest = b""
        self._noise: list[bytes] = []
        self._arrived = threading.Condition()

    def add(self, stream: str, data: bytes) -> None:
        """Take output as it comes; what is no event is kept as noise, for the reason of a failure."""
        if stream != "stdout":
            self._noise.append(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)

    def end(self) -> None:
        """The run is over: nobody need wait any longer."""
        with self._arrived:
            self.all.append({"event": "end"})
            self._arrived.notify_all()

    def of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in list(self.all) if event["event"] == kind]

    def wait(self, kind: str, timeout_s: float) -> Event | None:
        """The first event of this kind; None when the run ended, or the time is over, without it."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self.of(kind) or self.of("end")), timeout_s)
        return next(iter(self.of(kind)), None)

    def complaint(self) -> str:
        """The last line that the program printed on stderr."""
        lines = b"".join(self._noise).decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _line(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self._noise.append(line + b"\n")
            return
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            with self._arrived:
                self.all.append(event)
                self._arrived.notify_all()
            if self._on_event:
                self._on_event(event)
