"""Messages that wait on a disk for their receivers: one folder a receiver, one file a message, in their order."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List

from ..common.secret_words import without_secrets
from ..jobs.folder import sync_folder, write_atomic

RECEIVERS, SPARE, OVER, TO = "receivers.json", "spare", "over", "to"
SPARE_BYTES = 256 << 10
_MESSAGE, _REFUSED = ".json", ".refused"
_KEPT = 20
# which events a receiver gets by one word of its `on`
_ALSO = {"job-goes-on": "job-stall", "host-recovered": "host-failed"}
_TITLE_CHARS, _TEXT_CHARS = 200, 900  # of a message of 4096 bytes and more ntfy makes an attachment
Row = Dict[str, Any]


class Queue:
    """The folder `path`: `receivers.json`, mode 0600, and the messages below."""

    def __init__(self, path: str) -> None:
        self.path = path

    def at(self, *names: str) -> str:
        """Return a path inside the folder."""
        return os.path.join(self.path, *names)

    @property
    def exists(self) -> bool:
        """Tell whether there is anybody to be told, and something left to tell."""
        return os.path.exists(self.at(RECEIVERS)) and not os.path.exists(self.at(OVER))

    def settings(self) -> Row:
        """Return `fleet` and `receivers`; OSError or ValueError where they cannot be read."""
        with open(self.at(RECEIVERS), "rb") as file:
            settings: Row = json.loads(file.read())
        return settings

    def open(self, settings: Row) -> None:
        """Write the settings, and hold space for messages on a disk that becomes full."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        self.write(self.at(RECEIVERS), settings)
        self.reserve()

    def reserve(self) -> None:
        """Hold space for messages on a disk that becomes full; where it is full already there is none."""
        if not os.path.exists(self.at(SPARE)):
            with contextlib.suppress(OSError):
                write_atomic(self.at(SPARE), b" " * SPARE_BYTES)

    def put(self, event: str, event_id: str, title: str, text: str, *, only: str = "", **more: object) -> List[str]:
        """Add a message for each receiver that wants it (`only` one, if named), on the disk when this returns.

        Return their names.
        """
        settings = self.settings()
        told = compose_event(settings["fleet"], event, event_id, title, text, **more)
        message = {"event": told, "put": time.time(), "tries": 0, "why": ""}
        subject = _ALSO.get(event, event)
        wanted = [one["name"] for one in settings["receivers"] if subject in one["on"] and only in ("", one["name"])]
        for name in wanted:
            os.makedirs(self.at(TO, name), mode=0o700, exist_ok=True)
            last = int(max(self.waiting(name), default="0").partition("-")[0])  # the clock may have been set back
            self.write(self.at(TO, name, f"{max(time.time_ns(), last + 1):020d}-{event_id}{_MESSAGE}"), message)
        return wanted

    def write(self, path: str, row: Row) -> None:
        """Write a file of the queue; on a full disk into the space that was held for it."""
        data = json.dumps(row).encode()
        try:
            write_atomic(path, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not os.path.exists(self.at(SPARE)):
                raise
            os.unlink(self.at(SPARE))
            write_atomic(path, data)

    def waiting(self, name: str) -> List[str]:
        """Return the names of the receiver's messages, oldest first."""
        return self._files(name, _MESSAGE)

    def _files(self, name: str, ending: str) -> List[str]:
        try:
            return sorted(file for file in os.listdir(self.at(TO, name)) if file.endswith(ending))
        except OSError:
            return []

    def read(self, name: str, file_name: str) -> Row:
        """Return a message; one that is damaged is {}."""
        try:
            with open(self.at(TO, name, file_name), "rb") as file:
                message = json.loads(file.read())
        except ValueError:
            return {}
        return message if isinstance(message, dict) and isinstance(message.get("event"), dict) else {}

    def note_try(self, name: str, file_name: str, message: Row) -> None:
        """Keep how often a message was tried, and why it is still here; a full disk keeps the old count."""
        with contextlib.suppress(OSError):
            write_atomic(self.at(TO, name, file_name), json.dumps(message).encode())

    def done(self, name: str, file_name: str) -> None:
        """Take a delivered message away."""
        os.unlink(self.at(TO, name, file_name))
        sync_folder(self.at(TO, name))

    def give_up(self, name: str, file_name: str, message: Row) -> None:
        """Put a message aside that will not be tried again; the newest of these are kept."""
        self.note_try(name, file_name, message)
        os.replace(self.at(TO, name, file_name), self.at(TO, name, file_name[: -len(_MESSAGE)] + _REFUSED))
        for old in self._files(name, _REFUSED)[:-_KEPT]:
            os.unlink(self.at(TO, name, old))

    def rest(self) -> None:
        """Remove the receivers, with what is secret of them, where no message waits."""
        if not any(self.waiting(name) for name in self.names()):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.at(RECEIVERS))

    def names(self) -> List[str]:
        """Return the receivers for which something lies here."""
        try:
            return sorted(os.listdir(self.at(TO)))
        except OSError:
            return []

    def pending(self) -> List[Row]:
        """Return a row a message that waits or was given up."""
        files = [
            (name, file) for name in self.names() for end in (_REFUSED, _MESSAGE) for file in self._files(name, end)
        ]
        rows = []
        for name, file_name in files:
            with contextlib.suppress(OSError):
                message = self.read(name, file_name)
                row = {key: message.get("event", {}).get(key, "") for key in ("event", "id")}
                row.update({"tries": message.get("tries", 0), "why": message.get("why", "")})
                rows.append({"job": "", "receiver": name, **row, "waits": file_name.endswith(_MESSAGE)})
        return rows

    def start(self, name: str) -> int:
        """Start a sender for this receiver, which ends at once where one is at work; return its pid."""
        run = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "run.py")
        argv = [sys.executable, "-S", run, "notify.send", self.path, name]
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        return os.posix_spawn(sys.executable, argv, os.environ, file_actions=null, setsigdef=[signal.SIGTERM])


def compose_event(fleet: str, event: str, event_id: str, title: str, text: str, **more: object) -> Row:
    """Return an event as receivers get it; texts of others are cut, and become one line.

    `event_id` is the same wherever the event is told from: at most 64 letters, digits, - and _.
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    row = {"id": event_id, "event": event, "time": at, "fleet": fleet, "host": None, "job": None}
    return {**row, "title": _line(title, _TITLE_CHARS), "text": _line(text, _TEXT_CHARS), "cause": None, **more}


def _line(text: str, most: int) -> str:
    """Return the text on one line, without control characters and secrets that it quotes."""
    return without_secrets(" ".join("".join(char if char.isprintable() else " " for char in text).split()))[:most]
