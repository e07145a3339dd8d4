"""Runs the operator's `on_event` program: one event as JSON on its standard input, within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Dict, List, Optional, Sequence

from .secret_words import without_secrets

SCHEMA = "nodectl.event/1"
LIMIT_S = 10.0
_SUMMARY_CHARS = 600
_LAST_BYTES = 400


def compose(
    event: str, summary: str, details: Dict[str, Any], *, host: Optional[str] = None, job: Optional[str] = None
) -> bytes:
    """Return the event's JSON; its summary is one line, without secrets."""
    printable = "".join(char if char.isprintable() else " " for char in summary)
    document = {
        "schema": SCHEMA,
        "event": event,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": host,
        "job": job,
        "summary": without_secrets(" ".join(printable.split()))[:_SUMMARY_CHARS],
        "details": details,
    }
    return json.dumps(document).encode()


def run_hook(argv: Sequence[str], event: bytes) -> str:
    """Run the program once and end all that it has left in its group; return why it failed, or ""."""
    with tempfile.TemporaryFile() as errors:
        problem = _run(argv, event, errors)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        last = " ".join(errors.read().decode(errors="replace").split())
    return f"{problem}: {without_secrets(last)}" if problem and last else problem


def _run(argv: Sequence[str], event: bytes, errors: IO[bytes]) -> str:
    options: Dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": errors}
    try:
        process = subprocess.Popen(argv, start_new_session=True, **options)
    except (OSError, ValueError) as error:
        return f"{argv[0]} could not be started: {getattr(error, 'strerror', None) or error}"
    try:
        process.communicate(event, timeout=LIMIT_S)
        return f"{argv[0]} ended with exit status {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        return f"{argv[0]} was killed: it did not end within {LIMIT_S:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(argv: List[str]) -> int:
    """Run `PROGRAM [ARGUMENT]...` with the event of standard input; a failure is a line on standard error."""
    event = sys.stdin.buffer.read()
    with contextlib.suppress(OSError):  # it may lead a session already
        os.setsid()
    if problem := run_hook(argv, event):
        name = json.loads(event)["event"]
        sys.stderr.write(f"on_event: {name}: {problem}\n")
    return 0
