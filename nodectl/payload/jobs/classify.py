"""Which failure is a cause and which only its echo: classes of rank deaths, worst witness first."""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, Iterable, Optional, Tuple

# a cause comes before its echoes: a killed rank makes its peers fail with communication errors within milliseconds
KINDS = (
    *("signal", "exception", "exit", "checkpoint", "start"),
    *("supervisor", "host_lost", "launcher", "communication", "terminated"),
)

_COMMUNICATION = re.compile(
    r"connection (?:closed|reset|refused|timed out|was closed)|broken pipe|gloo|nccl(?:remote|system|internal)error|"
    r"distbackenderror|distnetworkerror|diststoreerror|tcpstore|recvvalue failed|sendbytes failed|socket timeout|"
    r"watchdog caught collective|watchdog (?:got stuck|hang)|heartbeat monitor timed out|timed out waiting|"
    r"no route to host|network is unreachable|unhandled system error",
    re.IGNORECASE,
)
# torch puts "[rank3]: " before each line of a traceback
_EXCEPTION = re.compile(r"^(?:\[[^\]]*\]: ?)?((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?::.*)?)$")
_NAMED_ERROR = re.compile(r"^(?:\[[^\]]*\]: ?)?((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)(?::.*)?)$")
_LONGEST = 500
_LAST_LINES = 8
_TORCHRUN = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: \d+\)")


def last_exception(text: str) -> str:
    """The last line of the last traceback in `text`; empty where there is none."""
    start = text.rfind("Traceback (most recent call last):")
    # a SyntaxError in the script itself comes without that line
    lines, pattern = (
        (text[start:].splitlines()[1:], _EXCEPTION) if start >= 0 else (text.splitlines()[-_LAST_LINES:], _NAMED_ERROR)
    )
    for line in lines:
        match = pattern.match(line)
        if match:
            return match.group(1)[:_LONGEST]
    return ""


def wait_status(status: int) -> int:
    """A wait status as Python's returncode: an exit code, or minus a signal."""
    number = status & 0x7F
    return -number if number else status >> 8


def torchrun_exit(text: str, local_rank: int) -> Optional[int]:
    """What torchrun's own log says of a rank's end; None where it says nothing."""
    codes = [int(code) for code, rank in _TORCHRUN.findall(text) if int(rank) == local_rank]
    return codes[-1] if codes else None


def classify(code: Optional[int], stderr: str, *, after_another: bool) -> Tuple[str, str]:
    """Kind and message of a rank's end; `after_another`: another rank of this host had failed before."""
    exception = last_exception(stderr)
    if code is not None and code < 0:
        if after_another and -code == signal.SIGTERM:
            return "terminated", "ended by its launcher after another rank"
        if -code == signal.SIGABRT and (exception or _COMMUNICATION.search(stderr)):
            # C++ threads of torch abort a process that is ending already
            return _by_exception(exception or "aborted by a communication library (gloo or NCCL)")
        return "signal", f"killed by signal {-code} ({signal_name(-code)})"
    if exception:
        return _by_exception(exception)
    return "exit", "ended without a known exit status" if code is None else f"exit status {code}"


def _by_exception(exception: str) -> Tuple[str, str]:
    return ("communication" if _COMMUNICATION.search(exception) else "exception"), exception


def signal_name(number: int) -> str:
    """SIGKILL for 9; the number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def severity(kind: str, exit_status: Optional[int]) -> float:
    """Place of a failure among those of its job, the likeliest cause lowest.

    A launcher ends the other ranks with SIGTERM, perhaps before the rank that failed was seen: that is hardly a cause.
    """
    if kind == "signal" and exit_status == 128 + signal.SIGTERM:
        return KINDS.index("launcher") + 0.5
    return float(KINDS.index(kind))


def first(failures: Iterable[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """The likeliest cause: by kind, then by time; None where there is none."""
    return min(failures, key=lambda item: (severity(item["kind"], item.get("exit_status")), item["time"]), default=None)
