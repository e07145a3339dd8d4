"""Judges why a rank ended, from its evidence, strongest first: a class of failure, and whether it is only an echo."""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..common.patterns import lazily
from . import rules

# torch puts "[rank3]: " before each line of a traceback
_TAG = lazily(r"^\[[^\]]*\]: ?")
_EXCEPTION = lazily(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?::.*)?$")
_NAMED_ERROR = lazily(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)(?::.*)?$")
# a line that begins something new: it does not continue the exception's message
_OTHER_LINE = lazily(
    r"$|terminate called|Fatal Python error|\[?[EWIF]\d{3,4}[ :]|"
    r"\[(?:W|E|I|F|rank\d+\]:\[)|During handling of|The above exception"
    r"|Traceback \(most recent|Exception (?:in thread|ignored) |\d{4}-\d\d-\d\d"
)
_WHAT = lazily(
    r"terminate called after throwing an instance of '([^']+)'\s*what\(\): *([^\n]*(?:\n(?!terminate)[^\n]+){0,6})"
)
_USAGE = lazily(
    r"^(?:usage: .*|\S+: error: (?P<words>.*)|"
    r"Error: (?P<error>(?:No such option|Missing|Invalid value|Got unexpected).*))$",
    re.M,
)
_LONGEST = 4000
_LINES = 24
_LAST_LINES = 8
_LAST_WORDS = 4
_TORCHRUN = lazily(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: \d+\)")
_TRACEBACK = "Traceback (most recent call last):"

LOG_ONLY = "log text only"


def last_exception(text: str) -> str:
    """Return the last exception of `text` with all lines of its message, or ""."""
    start = text.rfind(_TRACEBACK)
    # a SyntaxError in the script itself is printed without the "Traceback" line
    lines, pattern = (
        (text[start:].splitlines()[1:], _EXCEPTION) if start >= 0 else (text.splitlines()[-_LAST_LINES:], _NAMED_ERROR)
    )
    for number, line in enumerate(lines):
        if pattern.match(_TAG.sub("", line)):
            return _message(lines[number:])
    return ""


def _message(lines: List[str]) -> str:
    """Return an exception's message: the lines with its rank's tag, or, without tags, up to a line that begins anew."""
    match = _TAG.match(lines[0])
    tag = match.group().rstrip() if match else ""
    message = [lines[0][len(match.group()) if match else 0 :]]
    for line in lines[1:_LINES]:
        if not line.startswith(tag) if tag else _OTHER_LINE.match(line):
            break
        message.append(_TAG.sub("", line, count=1) if tag else line)
    return "\n".join(message).rstrip()[:_LONGEST]


def torchrun_exit(text: str, local_rank: int) -> Optional[int]:
    """Return a rank's exit code from torchrun's log; None if the log has none."""
    codes = [int(code) for code, rank in _TORCHRUN.findall(text) if int(rank) == local_rank]
    return codes[-1] if codes else None


class Evidence(NamedTuple):
    """All that is known about a rank's end, the strongest first.

    note: the rank's record of its uncaught exception; watched: its Python would have written one; left: it recorded
    that it ended without one. memory_killer, kernel: sentences for people. other_kills: what is known of the memory
    killer's other victims; killed_then: this rank may be one. full: folders without space. log: the end of its output;
    shared: the log may hold other ranks' lines. stack: faulthandler's text for a crash.
    """

    code: Optional[int] = None
    after_another: bool = False
    note: Optional[Dict[str, Any]] = None
    watched: bool = False
    left: bool = False
    memory_killer: Tuple[str, ...] = ()
    other_kills: str = ""
    killed_then: bool = False
    kernel: Tuple[str, ...] = ()
    xid: bool = False
    full: Tuple[str, ...] = ()
    log: str = ""
    code_from_log: bool = False
    shared: bool = False
    stack: str = ""

    @property
    def exception(self) -> str:
        """The log's last exception; for a shared log only its first line."""
        text = last_exception(self.log)
        return _first_line(text) if self.shared else text


class Verdict(NamedTuple):
    """Judgement of a rank's end: `kind` orders it among failures, `category` is its class, `evidence` is for people."""

    kind: str
    category: str
    message: str
    evidence: Tuple[str, ...] = ()
    traceback: str = ""


def judge(evidence: Evidence) -> Verdict:
    """Return what ended a rank; texts of its log count least, and are marked as such."""
    code = evidence.code
    if evidence.note is not None:  # what came after an uncaught exception did not end the rank
        verdict = _by_note(evidence.note)
    else:
        verdict = _by_signal(-code, evidence) if code is not None and code < 0 else _by_status(evidence)
    lines = [_status_line(evidence), *verdict.evidence, *evidence.kernel]
    if verdict.category in _OF_MEMORY:
        lines += evidence.memory_killer or (() if verdict.category == "host_out_of_memory" else (evidence.other_kills,))
    if verdict.category == "helper_killed":
        lines += [f"its log holds: {worker_line} ({LOG_ONLY})" for worker_line in _WORKER.findall(evidence.log)[-1:]]
    lines += [f"no space left for {place}" for place in evidence.full]
    if evidence.xid and verdict.kind in ("exception", "communication", "signal"):
        verdict = verdict._replace(
            category="xid", kind="exception" if verdict.kind == "communication" else verdict.kind
        )
    return verdict._replace(evidence=tuple(dict.fromkeys(filter(None, lines))))


# as torch's DataLoader prints it of a worker that crashes
_WORKER = lazily(r"ERROR: Unexpected [^\n]{1,60} encountered in worker")

# the classes for which the control groups' counters are evidence
_OF_MEMORY = ("host_out_of_memory", "helper_killed")


def _status_line(evidence: Evidence) -> str:
    code = evidence.code
    if code is None:
        return "its exit status is not known: its launcher took it away first"
    what = f"signal {-code} ({signal_name(-code)})" if code < 0 else f"exit status {code}"
    return f"{what}, as its launcher's log has it ({LOG_ONLY})" if evidence.code_from_log else f"its own end: {what}"


def _by_note(note: Dict[str, Any]) -> Verdict:
    chain, full = note["chain"], note.get("full") or ()
    category = rules.category_of(chain, full)
    evidence = ["its own error file: an uncaught exception"]
    for link in chain[1:]:
        relation = "raised from" if link["role"] == "cause" else "raised while handling"
        evidence.append(f"{relation} {_first_line(link['message'])}")
    evidence += [f"no space was left for {place}" for place in full]
    where = _last_program_frame(chain)
    if where:
        evidence.append(where)
    return Verdict(
        _kind(category), category, chain[0]["message"][:_LONGEST], tuple(evidence), str(note.get("text", ""))
    )


_LIBRARY = lazily(r"site-packages|dist-packages|/lib/python3|^<frozen ")


def _last_program_frame(chain: List[Dict[str, Any]]) -> str:
    frames = chain[0].get("frames") or ()
    program_frames = [frame for frame in frames if not _LIBRARY.search(str(frame[0]))]
    return f"at {program_frames[-1][0]}:{program_frames[-1][1]} in {program_frames[-1][2]}" if program_frames else ""


def _kind(category: str) -> str:
    return "communication" if rules.is_echo(category) or category == "rendezvous" else "exception"


def _by_signal(number: int, evidence: Evidence) -> Verdict:
    message = f"killed by signal {number} ({signal_name(number)})"
    if number == signal.SIGTERM and evidence.after_another:
        return Verdict("terminated", "terminated", "ended by its launcher after another rank")
    if number == signal.SIGKILL and evidence.memory_killer:
        return Verdict("signal", "host_out_of_memory", f"{message}: the kernel's memory killer ended it")
    if number == signal.SIGBUS and any(place == "/dev/shm" for place in evidence.full):  # noqa: S108
        return Verdict("signal", "shared_memory_full", f"{message}: /dev/shm is full")
    if number == signal.SIGABRT:
        return _by_abort(message, evidence)
    if number in _CRASHES:
        return _by_crash(message, evidence)
    if number in _LIMITS:
        return Verdict("signal", "limits", f"{message}: {_LIMITS[number]}")
    if number in _ITS_OWN:
        return Verdict("signal", "interrupted", f"{message}: {_ITS_OWN[number]}")
    killer = () if number != signal.SIGKILL else (evidence.other_kills or _NO_KILLER,)
    if number == signal.SIGKILL and evidence.killed_then:
        return Verdict("signal", "host_out_of_memory", f"{message}, {_PERHAPS_KILLER}", killer)
    return Verdict("signal", "killed_from_outside", message, killer)


_NO_KILLER = "nothing tells of the kernel's memory killer"
_PERHAPS_KILLER = "perhaps by the kernel's memory killer, which ended a process of this machine in that moment"


_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP)


_LIMITS: Dict[int, str] = {
    signal.SIGXFSZ: "a file grew beyond the limit of its size",
    signal.SIGXCPU: "it used up the CPU time that its limit gives it",
}
_ITS_OWN: Dict[int, str] = {
    signal.SIGPIPE: "it wrote to a pipe or a connection that its reader had closed",
    signal.SIGALRM: "a timer that it had set itself ran out",
    signal.SIGVTALRM: "a timer that it had set itself ran out",
    signal.SIGPROF: "a timer that it had set itself ran out",
}
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')


def _by_crash(message: str, evidence: Evidence) -> Verdict:
    thread = evidence.stack.partition("Current thread ")[2].partition("\n\n")[0]
    frames = [(frame[1], frame[2], frame[3]) for frame in _FRAME.finditer(thread)]
    where = _last_program_frame([{"frames": frames[::-1]}]) or (
        f"at {frames[0][0]}:{frames[0][1]} in {frames[0][2]}" if frames else ""
    )
    return Verdict("signal", "crash", message, (where,) if where else _last_line(evidence), evidence.stack)


def _last_line(evidence: Evidence) -> Tuple[str, ...]:
    last_line = "" if evidence.shared else _last_words(evidence.log)
    return (f"its last words: {last_line} ({LOG_ONLY})",) if last_line else ()


def _last_words(log: str) -> str:
    lines = (_TAG.sub("", line).strip() for line in reversed(log.splitlines()))
    return next((line for line in lines if line and not _NOT_ITS_OWN.match(line)), "")[:300]


# lines that libraries write after the program's last line: torch's logs, and warnings while Python ends
_NOT_ITS_OWN = lazily(r"\[?[EWIF]\d{3,4}[ :]|\S+:\d+: \w*Warning: |warnings\.warn\(")


def _by_abort(ended: str, evidence: Evidence) -> Verdict:
    exception = "" if evidence.watched else evidence.exception
    if exception:
        return _by_log(exception, evidence.full)
    thrown = _WHAT.search(evidence.log)
    if thrown:
        message = f"{thrown[1]}: {thrown[2].strip()}"[:_LONGEST]
        category = rules.of_text(message)
        if category != rules.SCRIPT:
            return _by_log(message, evidence.full)
        return Verdict("signal", "crash", f"{ended}: {message}", (f"its last words ({LOG_ONLY})",))
    category = rules.of_text(evidence.log[-_LONGEST:])
    if category in ("gpu_error", "gpu_out_of_memory"):
        return Verdict("signal", category, ended, (f"its last words ({LOG_ONLY})",))
    if rules.is_echo(category):
        echoes = [_TAG.sub("", line)[:500] for line in evidence.log.splitlines() if rules.is_echo(rules.of_text(line))]
        text = "\n".join(["aborted by a communication library (gloo or NCCL)", *echoes[-_LAST_WORDS:]])
        return Verdict("communication", category, text, (f"its last words ({LOG_ONLY})",))
    if evidence.full:  # a program that aborts prints why, and the full disk did not take it
        return Verdict("signal", "disk_full", f"{ended}: no space is left for {evidence.full[0]}", (), evidence.stack)
    if "<no Python frame>" in evidence.stack and not _FRAME.search(evidence.stack):
        wound_down = "no Python was at work in it any more: its script had ended"
        return Verdict("signal", "abort_at_exit", ended, (wound_down, *_last_line(evidence)), evidence.stack)
    return _by_crash(ended, evidence)


def _by_log(exception: str, full: Tuple[str, ...]) -> Verdict:
    category = rules.of_text(exception, full)
    return Verdict(_kind(category), category, exception, (f"the last traceback of its log ({LOG_ONLY})",))


def _by_status(evidence: Evidence) -> Verdict:
    printed = evidence.exception
    ended = "ended without a known exit status" if evidence.code is None else f"exit status {evidence.code}"
    usage = _usage(evidence.log) if evidence.code == _USAGE_STATUS else ""
    if usage:
        return Verdict("exit", "bad_argument", f"{ended}: {usage}", (f"its last words: {usage} ({LOG_ONLY})",))
    if printed and not evidence.left and evidence.code in (None, 1):
        verdict = _by_log(printed, evidence.full)
        return verdict._replace(evidence=(*verdict.evidence, *((_NO_NOTE,) if evidence.watched else ())))
    if printed and rules.is_echo(rules.of_text(printed)):
        message = f"{ended} after {_first_line(printed)}"
        return Verdict("communication", rules.of_text(printed), message, (f"{_PRINTED} ({LOG_ONLY})",))
    hint = () if printed and _last_words(evidence.log) == _first_line(printed) else _last_line(evidence)
    hint = (f"its log holds {_PRINTED}: {_first_line(printed)} ({LOG_ONLY})", *hint) if printed else hint
    if evidence.code is not None and evidence.code > 128 and signal_name(evidence.code - 128).startswith("SIG"):
        return _by_child(evidence, ended, hint)
    if evidence.full:
        return Verdict("exit", "disk_full", ended, hint)
    return _by_last_words(evidence, ended, hint)


_PRINTED = "a traceback that did not end it"
_NO_NOTE = (
    "perhaps it ended by this exception: its Python wrote neither an uncaught exception nor an end without one into"
    " nodectl's notes"
)
# what libraries print before they end a process themselves
_OF_LIBRARIES = ("limits", "host_out_of_memory", "disk_full", "import_error", "version_mismatch")


def _by_last_words(evidence: Evidence, ended: str, hint: Tuple[str, ...]) -> Verdict:
    last_words = "" if evidence.shared or evidence.exception else _last_words(evidence.log)
    category = rules.of_text(last_words) if last_words and evidence.code != 0 else rules.SCRIPT
    if category in _OF_LIBRARIES:
        return Verdict("exit", category, f"{ended}; its last words: {last_words}", hint)
    return Verdict("exit", "exit", ended, hint)


def _by_child(evidence: Evidence, ended: str, hint: Tuple[str, ...]) -> Verdict:
    number = (evidence.code or 0) - 128
    by = f"{ended}: what it had started was killed by {signal_name(number)}"
    if number == signal.SIGKILL and evidence.memory_killer:
        return Verdict("exit", "host_out_of_memory", by, hint)
    if number == signal.SIGKILL and evidence.other_kills:
        hint = (evidence.other_kills, *hint)
    if number in _LIMITS:
        return Verdict("exit", "limits", f"{by}: {_LIMITS[number]}", hint)
    return Verdict("exit", "exit", by, hint)


_USAGE_STATUS = 2  # of argparse and click


def _usage(log: str) -> str:
    matches = list(_USAGE.finditer(log))
    return next((complaint for match in reversed(matches) for complaint in match.groups() if complaint), "")


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:500]


def signal_name(number: int) -> str:
    """Return the signal's name (SIGKILL for 9), or the number as text if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class LauncherWords(NamedTuple):
    """The last output of a launcher that ended by itself; `signal` is the signal it had received (0: none)."""

    message: str
    category: str = "launcher"
    evidence: Tuple[str, ...] = ()
    signal: int = 0


_SIGNALLED = lazily(r"SignalException: Process \d+ got signal: (\d+)")


def launcher_words(output: str) -> LauncherWords:
    """Return the launcher's exception or its last line, and the signal it had received."""
    exception = last_exception(output)
    signalled = _SIGNALLED.search(exception)
    if signalled:
        return LauncherWords(exception, signal=int(signalled[1]))
    lines = output.strip().splitlines()
    if not exception or "ChildFailedError" in exception:
        return LauncherWords(lines[-1] if lines else "without a word")
    category = rules.of_text(exception)
    category = "launcher" if category == rules.SCRIPT else category
    return LauncherWords(exception, category, (f"the last traceback of the launcher ({LOG_ONLY})",))
