"""Ansible's events as values: what became of each task, the hosts' tallies, the answers and findings of our modules."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.common.access import VAULT_REMEDY
from nodectl.common.resources import table
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_REFUSALS = Path(__file__).with_name("refusals.yml")
_SEE = "docs/sudoers.md"
# with an own question to type the password at, Ansible takes what else sudo says for a part of it
_SILENCE = re.compile(r"No start of json char found\Z")
_SILENT = "nothing came back from the Python that was to run as root: sudo may let the login run some commands only"
# no password was given, or another one than it was encrypted with
_SHUT = re.compile(r"no vault secrets (?:were )?found")


# of Linux, Python and what they say of themselves: dpkg, rpm, tar, cp; apt and dnf before they begin
_FULL = re.compile(
    r"No space left on device(?:: b?'(?P<file>/[^'\n]+)')?(?: -> b?'(?P<to>/[^'\n]+)')?"
    r"|enough free space in (?P<apt>/[\w./-]*[\w/-])|on the (?P<dnf>/[\w./-]*) filesystem"
    r"|Disk quota exceeded"
)
_PATH = re.compile(r"(?<![\w/.:])/[\w.+-]+(?:/[\w.+-]+)*")


def explained(text: str) -> str:
    """Return `text` with what to do, or where it says that a login could not become root, why in one line."""
    if _SHUT.search(text):
        return f"{text.rstrip('. ')}; {VAULT_REMEDY}"
    if full := _FULL.search(text):
        file = full["to"] or full["file"]
        place = posixpath.dirname(file) if file else full["apt"] or full["dnf"] or next(iter(_PATH.findall(text)), "/")
        return (
            f"{text.rstrip('. ')}; full is the file system of {place}: "
            f"`df -h {shlex.quote(place)}; df -i {shlex.quote(place)}` there, make room and run it again"
        )
    for row in table(_REFUSALS):
        if match := re.search(row["said"], text):
            names = match.groupdict()
            values = {
                "login": names.get("login") or "LOGIN",
                "tool": names.get("tool") or names.get("program") or "sudo",
            }
            return f"{row['why']}; {row['remedy']} ({_SEE})".format(**values)
    if _SILENCE.search(text):
        return f"{text}; {_SILENT}; `sudo -l` shows which ({_SEE})"
    return text


_LAST_LINES = 12
# Ansible says first through which of its parts the message came
_PROFILE_ERROR = re.compile(r".*The lookup plugin '(?:nodectl\.fleet\.)?fleet_profile' failed: ", re.DOTALL)
_TRACE = re.compile(r'^  File "[^"\n]*", line \d+, in ', re.MULTILINE)
# a result that holds one of these is kept whole, for the command that asked for it
ANSWER_KEYS = ("findings", "rollback")


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """The outcome of one task on one host: ok, changed, failed, unreachable, skipped, its start, or a diff."""

    host: str
    task: str
    outcome: str
    text: str = ""
    diff: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A module's whole result on one host, for those that have any of ANSWER_KEYS."""

    host: str
    task: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HostTally:
    """Tasks of one host by outcome."""

    ok: int
    changed: int
    failed: int
    unreachable: int


@dataclass(frozen=True, slots=True)
class ProvisionRun:
    """A finished run: its name below the state folder, each host's tally, and what went wrong or was worth saying."""

    run: str
    hosts: Mapping[str, HostTally]
    problems: tuple[TaskEvent, ...]
    reports: tuple[TaskEvent, ...]
    answers: tuple[Answer, ...] = ()

    @property
    def exit_status(self) -> int:
        """1 if a task failed on any host, else 3 if any was unreachable, else 0."""
        if any(tally.failed for tally in self.hosts.values()):
            return 1
        return 3 if any(tally.unreachable for tally in self.hosts.values()) else 0


@dataclass(slots=True)
class Listener:
    """Turns ansible-runner's events into ours, and keeps those that the summary shows."""

    on_event: Callable[[TaskEvent], None]
    tallies: dict[str, HostTally] = field(default_factory=dict)
    problems: list[TaskEvent] = field(default_factory=list)
    reports: list[TaskEvent] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def hear(self, raw: Mapping[str, Any]) -> bool:
        """Keep what the summary shows.

        False: ansible-runner need not keep the event, its text is in the run's stdout.
        """
        data = raw.get("event_data") or {}
        self.lines = [*self.lines, *str(raw.get("stdout", "")).splitlines()][-_LAST_LINES:]
        if raw["event"] == "playbook_on_stats":
            self.tallies = read_tallies(data)
        result = data.get("res")
        if isinstance(result, Mapping) and any(key in result for key in ANSWER_KEYS):
            self.answers.append(Answer(str(data.get("host", "")), str(data.get("task", "")), result))
        event = read_event(str(raw["event"]), data, str(raw.get("stdout", "")))
        if event is not None:
            if event.outcome in ("failed", "unreachable"):
                self.problems.append(event)
            elif event.text:
                self.reports.append(event)
            self.on_event(event)
        return False

    def tail(self) -> str:
        """Return the last lines that Ansible printed."""
        return "\n".join(line for line in self.lines if line.strip())


def read_tallies(stats: Mapping[str, Any]) -> dict[str, HostTally]:
    """Return the hosts' tallies of Ansible's closing event."""
    names = sorted({host for key in ("processed", "dark", "failures", "ok") for host in stats.get(key, {})})
    fields = ("ok", "changed", "failures", "dark")
    return {name: HostTally(*(int(stats.get(key, {}).get(name, 0)) for key in fields)) for name in names}


def read_event(kind: str, data: Mapping[str, Any], shown: str) -> TaskEvent | None:
    """One of Ansible's events as ours; None for those that say nothing about a task."""
    host, role = str(data.get("host", "")), data.get("role")
    task = f"{role}: {data.get('task', '')}" if role else str(data.get("task", ""))
    result = data.get("res") or {}
    if kind == "playbook_on_task_start":
        return TaskEvent("", task, "start")
    if kind == "runner_on_unreachable":
        return TaskEvent(host, task, "unreachable", failure_text(result))
    if kind == "runner_on_failed" and not data.get("ignore_errors"):
        return TaskEvent(host, task, "failed", failure_text(result))
    if kind == "runner_on_skipped":
        return TaskEvent(host, task, "skipped")
    if kind == "runner_on_ok":
        changed = bool(result.get("changed"))
        lines = [] if changed else [report_text(str(data.get("task_action", "")), result)]
        lines += [f"warning: {text}".replace(f" {host}: ", " ", 1) for text in result.get("warnings") or ()]
        return TaskEvent(host, task, "changed" if changed else "ok", "\n".join(filter(None, lines)))
    if kind == "runner_on_file_diff" and shown.strip():
        return TaskEvent(host, task, "diff", diff=shown.strip())
    return None


def report_text(action: str, result: Mapping[str, Any]) -> str:
    """Return what a debug task says; empty for all other tasks."""
    message = result.get("msg", "") if action.rpartition(".")[2] == "debug" else ""
    return "\n".join(map(str, message)) if isinstance(message, list) else str(message)


def failure_text(result: Mapping[str, Any]) -> str:
    """Return why a task failed, from whichever fields its module filled."""
    items = [item for item in result.get("results", ()) if item.get("failed") or item.get("unreachable")]
    if items:
        reasons = {str(item.get("item", "")): failure_text(item) for item in items}
        if len(reasons) > 1 and len(set(reasons.values())) == 1:
            return next(iter(reasons.values()))
        return "\n".join(f"{item}: {reason}" for item, reason in reasons.items())
    parts = [str(result.get(key, "")).strip() for key in ("msg", "stderr", "module_stderr")]
    text = (
        "\n".join(dict.fromkeys(part for part in parts if part))
        or str(result.get("stdout", "")).strip()
        or "no reason given"
    )
    whole = _PROFILE_ERROR.sub("", text)
    # a module that crashed leaves Python's trace
    text = _TRACE.split(whole, maxsplit=1)[0].rstrip() or whole
    if (full := _FULL.search(whole)) and not _FULL.search(text):
        # a module that could not write its file ends with a trace, and this is its last line
        text = full.group()
    return explained(text)


def findings_of(answers: Iterable[Answer]) -> tuple[Finding, ...]:
    """Return the findings of all verify tasks in the order in which they were made; a later task replaces its own."""
    last: dict[tuple[str, str, str], list[Finding]] = {}
    for answer in answers:
        findings: dict[tuple[str, str, str], list[Finding]] = {}
        rows = answer.result.get("findings")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping):
                finding = _finding(answer.host, row)
                findings.setdefault((finding.host, finding.check, finding.subject), []).append(finding)
        last.update(findings)
    return tuple(finding for findings in last.values() for finding in findings)


def _finding(host: str, row: Mapping[str, Any]) -> Finding:
    try:
        status = Status(str(row.get("status")))
    except ValueError:  # what a node says is not ours to trust: not told is unknown
        status = Status.UNKNOWN
    names = ("check", "subject", "action", "expected", "actual", "remedy", "evidence")
    check, subject, action, expected, actual, remedy, evidence = (str(row.get(name, "")) for name in names)
    # a comparison of all hosts is one host's task
    return Finding(str(row.get("host") or host), check, status, subject, action, expected, actual, remedy, evidence)
