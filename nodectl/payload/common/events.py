"""Events: the frames in which programs speak to nodectl on the operator's side."""

from typing import Any

from .frames import send


def say(**event: Any) -> None:
    """Print an event as one frame."""
    send(event)


def first_line(error: BaseException) -> str:
    """Return the first line of its text, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
