"""Events: the JSON lines in which programs speak to nodectl on the operator's side."""

import json
import os
from typing import Any


def say(**event: Any) -> None:
    """Print an event as one JSON line."""
    # one write a line: lines of several processes share the pipe
    os.write(1, (json.dumps(event) + "\n").encode())


def first_line(error: BaseException) -> str:
    """The first line of its text, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
