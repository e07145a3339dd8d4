"""What Ansible says of an inventory that it cannot read, and where: it knows, but only warns."""

from __future__ import annotations

import traceback
from typing import Any


class Listener:
    """Stands in for Ansible's Display while it parses, and keeps why a source was refused."""

    def __init__(self, display: Any) -> None:
        self.display = display
        self.refusals: list[Exception] = []
        self.warnings: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.display, name)

    def error_as_warning(self, msg: str, exception: Exception) -> None:
        self.refusals.append(exception)

    def warning(self, msg: str, *_: object, **__: object) -> None:
        self.warnings.append(msg)

    def reason(self) -> str:
        """The refusal that knows its place best: every plugin that tried has left one."""
        return max((_located(error) for error in self.refusals), default=(0, ""), key=lambda found: found[0])[1]


def _located(error: BaseException) -> tuple[int, str]:
    """How much it is worth to the reader (a program's own failure, then file and line), and the message."""
    origin = getattr(error, "obj", None)
    path, line = getattr(origin, "path", None), getattr(origin, "line_num", None)
    described = str(getattr(origin, "description", None) or "")
    if "plugin 'script'" in described:
        return 3, f"{message(error)} {described}"
    if path and (line := line or _ini_line(error)):
        return 2, f"{path}:{line}: {message(error)}"
    return 1, f"{path or described}: {message(error)}"


def _ini_line(error: BaseException) -> int | None:
    """Ansible's INI reader counts its lines but leaves the number out of its errors."""
    for frame, _ in traceback.walk_tb(error.__cause__.__traceback__ if error.__cause__ else None):
        line, lines = frame.f_locals.get("line"), frame.f_locals.get("lines")
        if isinstance(lines, list) and line is not None:
            return next((number for number, text in enumerate(lines, start=1) if text.strip() == line), None)
    return None


def message(error: BaseException) -> str:
    """The error's own words, on one line."""
    return " ".join(str(getattr(error, "message", None) or error).split())
