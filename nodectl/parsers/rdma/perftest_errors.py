"""Knows by which words perftest says why a run failed, and what each means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodectl.parsers.text import Line

# the first that matches any line wins: perftest prints the cause together with lines that follow from it
_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("bad_option", r"unrecognized option|invalid option|option requires an argument|is ambiguous; possib"),
        (
            "bad_option",
            r"Invalid Command or flag|^\s{0,40}\w[\w ]{0,80} should be (?:between|at least|greater|less|multipl)",
        ),
        ("no_device", r"Did not detect devices|No IB devices found|IB device \S+ not found"),
        ("no_device", r"[Cc]ouldn't find (?:IB )?device|[Nn]o such device"),
        ("no_device", r"Unable to find the Infiniband/RoCE device"),
        ("port_down", r"Port number \d+ state is (?!Active\b)\w"),
        ("port_busy", r"Couldn't listen to port|Address already in use"),
        ("unresolved", r"[Nn]ame resolution|Name or service not known|No address associated with|[Uu]nknown host"),
        ("unresolved", r"Problem in resolving|RDMA_CM_EVENT_(?:ADDR|ROUTE)_ERROR"),
        # the number is the connection manager's event, which versions of 2026 name
        ("unresolved", r"CM event bl blka [13]\b"),
        ("refused", r"Connection refused|RDMA_CM_EVENT_REJECTED|CM event bl blka 8\b"),
        ("timeout", r"[Tt]imed out"),
        (
            "no_server",
            r"Couldn't connect to|No route to host|(?:Network|Host) is unreachable|RDMA_CM_EVENT_UNREACHABLE",
        ),
        ("no_server", r"Unable to open file descriptor for socket connection|Unable to init the socket connection"),
        ("no_server", r"CM event bl blka [67]\b"),
        ("memlock", r"[Cc]ouldn't allocate MR|[Ff]ailed to create (?:mr|MR)\b|Cannot allocate memory|locked memory"),
        ("bad_gid", r"(?i:gid index \S+ (?:is )?not found)"),
        (
            "bad_gid",
            r"Failed to modify QP (?:\d+ )?to RTR|(?i:(?:invalid|wrong|no such|couldn't get|can't get) gid)",
        ),
        ("bad_gid", r"Incompatibility issue with GID types"),
        # a request that the other side's buffer or test does not allow
        ("mismatch", r"Failed status (?:9|10)\b|remote (?:access|invalid request) error"),
        ("mismatch", r"(?i:mis-?match|not compatible|incompatible)"),
        # retries exhausted (12, 13), or the queue flushed (5) because the connection is gone
        ("peer_lost", r"Failed status (?:5|12|13)\b|(?i:retry counter exceeded|request flushed error)"),
        ("peer_lost", r"Couldn't read remote address|Failed to exchange data"),
        ("peer_lost", r"Unable to (?:read|write) (?:from|to) socket|Connection reset|Broken pipe"),
        ("peer_lost", r"RDMA_CM_EVENT_DISCONNECTED|CM event bl blka 10\b"),
        ("other", r"Failed status \d"),
        ("other", r"Failed status \d|Completion with error|Failed to complete run|Segmentation fault"),
    )
)
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for _, pattern in _KINDS))
# in the output of a run that has figures such a line may be a mere warning
_COMPLAINT = re.compile(
    r"^\s*\w+ failed\b|^\s*(?:\w+: )?(?:Failed to|Couldn't|Can(?:no|')t|Unable to|ERROR\b|Error\b|RDMA CM event error)"
)


# of taking the connection down, after the figures
_LATE = re.compile(r"Failed to disconnect|^\s*ERRNO:")


@dataclass(frozen=True, slots=True)
class PerftestError:
    """Why a run failed: no_device, no_server, refused, unresolved, port_down, port_busy, bad_gid, bad_option, mismatch,
    memlock, peer_lost, timeout or other; and the line that says so.
    """

    kind: str
    text: str


def is_error(text: str) -> bool:
    """The line tells of a failure, or complains."""
    return _ANY.search(text) is not None or _COMPLAINT.match(text) is not None


def find_error(lines: Sequence[Line], has_figures: bool) -> PerftestError | None:
    """The cause among the lines for which `is_error` holds."""
    if has_figures:
        lines = [line for line in lines if not _LATE.search(line.text)]
    for kind, pattern in _KINDS:
        for line in lines:
            if pattern.search(line.text):
                return PerftestError(kind, line.text.strip())
    if lines and not has_figures:
        return PerftestError("other", lines[0].text.strip())
    return None
