"""Knows why a run of perftest failed: from its own words, its exit status, what it was told, and its other end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nodectl.common.documents import values_of
from nodectl.common.resources import table
from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.perftest import Perftest, PerftestError, parse_perftest
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.probes.rdma.argv import NAME


@dataclass(frozen=True, slots=True)
class Kind:
    """`is_host`: the end that says it is at fault, else the path between the two."""

    remedy: str
    is_host: bool = False
    status: Status = Status.FAILED


@cache
def kinds() -> Mapping[str, Kind]:
    """Return the reasons for which a run of perftest fails."""
    rows = table(Path(__file__).with_suffix(".yml"))
    return dict(zip(rows, values_of(Kind, [*rows.values()]), strict=True))


def failed_finding(
    kind: str, actual: str, *hosts: str, status: Status | None = None, remedy: str = "", evidence: str = ""
) -> Finding:
    """One of `kinds`, which is the `subject`: of one host, or of the path between two."""
    reason = kinds()[kind]
    return Finding(
        hosts[0],
        NAME,
        status or reason.status,
        kind,
        actual=actual,
        remedy=remedy or reason.remedy,
        evidence=evidence,
        kind="host" if len(hosts) == 1 else "path",
        hosts=hosts,
    )


_NO_CONTEXT = re.compile(r"Couldn't (?:get|allocate) context|Permission denied|Operation not permitted")
_OLD_VERSION = re.compile(r"not compatible with versions? |(?i:version mis-?match)")
# printed once the two ends have found each other
_MET = re.compile(r"^\s*(?:local|remote) address:|(?:Test|BW|Latency) Test\s*$|Dual-port\s*:", re.MULTILINE)
_WAITS = re.compile(r"Waiting for client")
_BARE_FIGURE = re.compile(r"\s*\d+\.\d+\s*")
_ADDRESSES = re.compile(r"^\s*remote address:", re.MULTILINE)
# a shell's and the kernel's word for a program that is not there, or was ended from outside
_NO_PROGRAM = 127
_ENDED = (-9, -15, 137, 143, 255)
# what one end sees when the other has failed: the other knows more
_ECHOES = ("peer_lost", "no_server", "no_client", "timeout", "killed", "link_cut")


@dataclass(frozen=True, slots=True)
class Run:
    """One end of a test: the command and what became of it; `exit_status` None if it had not ended."""

    argv: Sequence[str]
    exit_status: int | None
    stdout: str
    stderr: str = ""
    timed_out: bool = False
    is_server: bool = False

    @property
    def text(self) -> str:
        """All that it printed, complaints first: they are not buffered."""
        return "\n".join(part for part in (self.stderr, self.stdout) if part)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why: one of `kinds`, and the words that say so; `by_partner` where the other end said them."""

    kind: str
    text: str
    by_partner: bool = False


def classify(run: Run, partner: Run | None = None, *, server_listens: bool | None = None) -> Failure | None:
    """Return why this end failed; None if it measured.

    What the `partner` said counts where it knows more. `server_listens` is for a client whose connection failed:
    whether its server is known to have been there, which leaves a firewall as the reason.
    """
    failure = _alone(run)
    other = _alone(partner) if partner is not None else None
    if other is not None and (failure is None or (failure.kind in _ECHOES and other.kind not in _ECHOES)):
        return Failure(other.kind, other.text, by_partner=True)
    if failure is None:
        return None
    if server_listens is None and partner is not None:
        # it was there, and nobody came to it
        waits, met = _WAITS.search(partner.text), _MET.search(partner.text)
        server_listens = partner.is_server and waits is not None and met is None
    if not run.is_server and failure.kind in ("no_server", "timeout") and server_listens and not _MET.search(run.text):
        return Failure("firewall", f"the server listens, but: {failure.text}")
    if other is not None and {failure.kind, other.kind} == {"timeout", "no_client"}:
        return Failure("timeout", "neither end was done in its time")
    return failure


def _alone(run: Run) -> Failure | None:
    try:
        parsed = parse_perftest(run.text)
    except ParseError:
        parsed = None
    if parsed is not None and parsed.error is not None:
        return _of_error(run, parsed, parsed.error)
    if parsed is not None and parsed.rows and not run.timed_out and run.exit_status == 0:
        return None
    return _without_words(run)


def _of_error(run: Run, parsed: Perftest, error: PerftestError) -> Failure:
    kind, text = error.kind, error.text
    if kind == "peer_lost" and any(row.iterations == 0 for row in parsed.rows) and run.exit_status == 0:
        return Failure("link_cut", f"nothing was carried: {text}")
    if kind == "peer_lost" and re.search(r"Failed status 1[23]\b", text):
        return Failure("link_cut", text)
    if kind == "memlock" and any(word.startswith("--use_cuda") for word in run.argv):
        return Failure("gpu_memory", text)
    if kind == "refused":
        return Failure("no_server", text)
    if kind == "no_server" and re.search(r"No route|unreachable", text):
        return Failure("unreachable", text)
    if kind in ("mismatch", "other") and (match := _OLD_VERSION.search(run.text)):
        return Failure("version_mismatch", _line_of(run.text, match))
    if kind == "other" and (match := _NO_CONTEXT.search(run.text)):
        return Failure("no_permission", _line_of(run.text, match))
    if kind == "timeout":
        return _without_words(run) or Failure(kind, text)
    return Failure(kind, text)


def _without_words(run: Run) -> Failure | None:
    if run.timed_out:
        if run.is_server and not _MET.search(run.text):
            return Failure("no_client", "nobody connected before its time was over")
        where = "nothing was carried" if _ADDRESSES.search(run.text) else "it had not connected"
        return Failure("timeout", f"did not end in its time: {where}")
    if run.exit_status == _NO_PROGRAM:
        return Failure("not_installed", run.text.strip() or "the program is not installed")
    if run.exit_status in _ENDED or run.exit_status is None:
        return Failure("killed", "it was ended from outside")
    if run.exit_status:
        return Failure("other", (run.text.strip().splitlines() or [f"exit status {run.exit_status}"])[-1].strip())
    # the passive end of some tests prints no table, and `--output` a bare number
    if (run.is_server and _ADDRESSES.search(run.text)) or _BARE_FIGURE.fullmatch(run.stdout):
        return None
    return Failure("other", "it printed no figures")


def _line_of(text: str, match: re.Match[str]) -> str:
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    return text[start : end if end >= 0 else len(text)].strip()
