"""Which failure is a cause and which only its echo: what the evidence of a rank's end says, the strongest first."""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..common.patterns import lazily
from . import rules
from .process import CpuTime

# torch puts "[rank3]: " before each line of a traceback
_TAG = lazily(r"^\[[^\]]*\]: ?")
_EXCEPTION = lazily(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?::.*)?$")
_NAMED_ERROR = lazily(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit)(?::.*)?$")
# a line that does not belong to the message before it
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

# what Python prints above the traceback of an exception that ended something else than the program
_ELSEWHERE = (
    (
        lazily(r"^(?:Exception(?: ignored)?|Unhandled exception) in thread (?:started by:? )?(.+?):?$"),
        "an uncaught exception of its thread {}, which ended the thread and not the rank",
    ),
    (lazily(r"^Exception ignored (?:in|on|while)\b:? ?(.*?):?$"), "an exception that Python ignored, in {}"),
    (lazily(r"^(?:future|task|handle): <(?:\w+\.)*(\w+)"), "an exception of asyncio's {}, for which nobody waited"),
)
_CHAINED = lazily(r"^(?:The above exception was the direct cause|During handling of the above exception)")

LOG_ONLY = "log text only"


def last_exception(text: str, *, own: bool = False) -> str:
    """Return the last exception of `text` with all lines of its message; empty where there is none.

    `own`: that may have ended the program, and not only a thread of it.
    """
    start = text.rfind(_TRACEBACK)
    if own and start >= 0 and _elsewhere(text, start):
        return last_exception(text[: _first_of_chain(text, start)], own=True)
    # a SyntaxError in the script itself comes without that line
    lines, pattern = (
        (text[start:].splitlines()[1:], _EXCEPTION) if start >= 0 else (text.splitlines()[-_LAST_LINES:], _NAMED_ERROR)
    )
    for number, line in enumerate(lines):
        if pattern.match(_TAG.sub("", line)):
            return _message(lines[number:])
    return ""


def aside(log: str) -> str:
    """Describe the last exception of a log that ended something else than the program, as a thread; empty for none."""
    start = log.rfind(_TRACEBACK)
    while start >= 0:
        whose = _elsewhere(log, start)
        if whose:
            end = log.find(_TRACEBACK, start + 1)
            text = last_exception(log[start : end if end >= 0 else len(log)])
            return f"its log holds {whose}: {_first_line(text)} ({LOG_ONLY})"
        start = log.rfind(_TRACEBACK, 0, start)
    return ""


def _first_of_chain(text: str, start: int) -> int:
    """Return where the traceback begins from which that at `start` came."""
    above = [line for line in text[:start].splitlines() if _TAG.sub("", line).strip()]
    before = text.rfind(_TRACEBACK, 0, start)
    return _first_of_chain(text, before) if above and before >= 0 and _CHAINED.match(_TAG.sub("", above[-1])) else start


def _elsewhere(text: str, start: int) -> str:
    """Say whose exception it was whose traceback begins at `start`; "" for the program's own."""
    above = [_TAG.sub("", line) for line in text[: _first_of_chain(text, start)].splitlines() if _TAG.sub("", line)]
    for pattern, words in _ELSEWHERE:
        match = pattern.search(above[-1]) if above else None
        if match:
            return words.format(match[1])
    return ""


def _message(lines: List[str]) -> str:
    """Return an exception's own lines: those with its tag, or, without one, up to what is another's."""
    match = _TAG.match(lines[0])
    tag = match.group().rstrip() if match else ""
    message = [lines[0][len(match.group()) if match else 0 :]]
    for line in lines[1:_LINES]:
        if not line.startswith(tag) if tag else _OTHER_LINE.match(line):
            break
        message.append(_TAG.sub("", line, count=1) if tag else line)
    return "\n".join(message).rstrip()[:_LONGEST]


def torchrun_exit(text: str, local_rank: int) -> Optional[int]:
    """Return what torchrun's own log says of a rank's end; None where it says nothing."""
    codes = [int(code) for code, rank in _TORCHRUN.findall(text) if int(rank) == local_rank]
    return codes[-1] if codes else None


class Evidence(NamedTuple):
    """Hold what is known of a rank's end, the strongest first.

    `note` is what it wrote of its uncaught exception itself, `watched` says that it would have, `left` that it wrote
    that it ended without one. `memory_killer` and `kernel` are sentences, `forks` too, of forks that a limit refused;
    `other_kills` says what else is known of the memory killer, `killed_then` that it may have come for this rank.
    `full` are folders without room; `log` is the end of what it wrote, `shared` says that it may hold other ranks'
    lines too. `warned` is the signal that nodectl sent it before the end of its time; `stack` is what faulthandler
    wrote of its crash; `cpu` is its CPU time where that is limited.
    """

    code: Optional[int] = None
    after_another: bool = False
    note: Optional[Dict[str, Any]] = None
    watched: bool = False
    left: bool = False
    memory_killer: Tuple[str, ...] = ()
    other_kills: str = ""
    killed_then: bool = False
    forks: Tuple[str, ...] = ()
    kernel: Tuple[str, ...] = ()
    xid: bool = False
    full: Tuple[str, ...] = ()
    log: str = ""
    code_from_log: bool = False
    shared: bool = False
    warned: int = 0
    stack: str = ""
    cpu: Optional[CpuTime] = None

    @property
    def exception(self) -> str:
        """The last one of the log that may have ended the rank; of a shared log its first line (see `printed`)."""
        text = last_exception(self.log, own=True)
        return _first_line(text) if self.shared else text

    @property
    def printed(self) -> Tuple[str, str]:
        """The last exception of the log, as `exception` has it, and what it was where it did not end the rank."""
        text = last_exception(self.log)
        whose = _elsewhere(self.log, self.log.rfind(_TRACEBACK)) if _TRACEBACK in self.log else ""
        return _first_line(text) if self.shared else text, whose or "a traceback that it handled"

    @property
    def aside(self) -> str:
        """Return what `aside` finds in its own log."""
        return "" if self.shared else aside(self.log)


class Verdict(NamedTuple):
    """Judge a rank's end: `kind` orders it among others, `category` is its class, `evidence` are lines for people."""

    kind: str
    category: str
    message: str
    evidence: Tuple[str, ...] = ()
    traceback: str = ""


def judge(known: Evidence) -> Verdict:
    """Return what ended a rank. Texts of its log come last, and are said to be that."""
    verdict = _of_forks(_judge(known), known)
    lines = [_status_line(known), *verdict.evidence, *known.kernel]
    if verdict.category in _OF_MEMORY:
        lines += known.memory_killer or (() if verdict.category == "host_out_of_memory" else (known.other_kills,))
    if verdict.category in _OF_LIMITS:
        lines += known.forks
    if verdict.category == "helper_killed":
        lines += [f"its log holds: {said} ({LOG_ONLY})" for said in _WORKER.findall(known.log)[-1:]]
    if verdict.kind == "communication":
        lines.append(known.aside)
    lines += [f"no space left for {place}" for place in known.full]
    if verdict.category == "helper_killed" and known.cpu:
        lines.append(f"the kernel kills a process here that uses {known.cpu.limit_s:g} s of CPU time (RLIMIT_CPU)")
    if known.xid and verdict.kind in ("exception", "communication", "signal"):
        verdict = verdict._replace(
            category="xid", kind="exception" if verdict.kind == "communication" else verdict.kind
        )
    return verdict._replace(evidence=tuple(dict.fromkeys(filter(None, lines))))


def _of_forks(verdict: Verdict, known: Evidence) -> Verdict:
    """Blame a limit of processes, where nothing else tells the cause and control groups had refused some."""
    said = [] if known.shared else known.log.splitlines()[-_LAST_LINES:]
    if verdict.category not in ("exit", "crash") or not (known.forks or any(map(_REFUSED.search, said))):
        return verdict
    words = f"{verdict.message}, perhaps because a limit had refused it processes or threads"
    return verdict._replace(category="limits", message=words)


# as libgomp, OpenBLAS, libuv and shells print it
_REFUSED = lazily(r"thread creation failed|pthread_create|fork: .*temporarily unavailable|create[_ ]thread", re.I)

# as torch's DataLoader prints it of a worker that crashes
_WORKER = lazily(r"ERROR: Unexpected [^\n]{1,60} encountered in worker")

# the classes of ends to which counts of control groups belong
_OF_MEMORY = ("host_out_of_memory", "helper_killed")
_OF_LIMITS = ("limits", "helper_killed")


def _status_line(known: Evidence) -> str:
    if known.code is None:
        return "its exit status is not known: its launcher took it away first"
    what = f"signal {-known.code} ({signal_name(-known.code)})" if known.code < 0 else f"exit status {known.code}"
    return f"{what}, as its launcher's log has it ({LOG_ONLY})" if known.code_from_log else f"its own end: {what}"


def _judge(known: Evidence) -> Verdict:
    code = known.code
    if known.note is not None:  # what came after an uncaught exception did not end the rank
        return _by_note(known.note)
    if code is not None and code < 0:
        return _by_signal(-code, known)
    return _by_status(known)


def _by_note(note: Dict[str, Any]) -> Verdict:
    chain, full = note["chain"], note.get("full") or ()
    category, limits = _within_limits(rules.category_of(chain, full), chain, note.get("limits"))
    evidence = ["its own error file: an uncaught exception"]
    for link in chain[1:]:
        evidence.append(f"{_RELATIONS.get(link['role'], 'raised while handling')} {_first_line(link['message'])}")
    evidence += [*limits, *(f"no space was left for {place}" for place in full)]
    where = _where(chain)
    if where:
        evidence.append(where)
    message, joined = chain[0]["message"][:_LONGEST], _joined(note)
    if joined:
        category, message = "bad_argument", f"{_first_line(message)}\n{joined}"
    return Verdict(_kind(category), category, message, tuple(evidence), str(note.get("text", "")))


def _joined(note: Dict[str, Any]) -> str:
    """Say that it called init_process_group with another rank or size than it was started with; else ""."""
    used, started = note.get("joined"), note.get("started")
    if not isinstance(used, dict) or not isinstance(started, dict) or not used or min(used.values()) < 0:
        return ""
    if not started or used == started:
        return ""
    # who orders ranks anew has as many of them
    perhaps = used["world_size"] == started.get("world_size") and used["rank"] < used["world_size"]
    words = [f"{name}={used[name]}" for name in ("rank", "world_size")]
    return (
        f"{'perhaps because ' if perhaps else ''}it called init_process_group with {' and '.join(words)}, and was"
        f" started as rank {started.get('rank')} of {started.get('world_size')}"
    )


# the limit of the process that speaks by an exception's words, as the kernel counts it, and its unit
_RLIMITS = (
    (lazily(r"too many open files|ancdata", re.I), ("RLIMIT_NOFILE",), "files"),
    (lazily(r"file too large", re.I), ("RLIMIT_FSIZE",), "bytes a file"),
    (lazily(r"new thread|temporarily unavailable|pthread_create", re.I), ("RLIMIT_NPROC",), "processes of its login"),
    (lazily(r"\bmlock|\bibv_", re.I), ("RLIMIT_MEMLOCK",), "bytes of locked memory"),
    (lazily(r"memory|bad_alloc|DefaultCPUAllocator", re.I), ("RLIMIT_AS", "RLIMIT_DATA"), "bytes of memory"),
)


def _within_limits(category: str, chain: List[Dict[str, Any]], held: Any) -> Tuple[str, List[str]]:
    """Return the class, and the limits of its own (`held`, by name) that the rank may have come to, in words."""
    if category not in ("limits", "host_out_of_memory") or not isinstance(held, dict):
        return category, []
    said = " ".join(f"{link['type']} {link['message']}" for link in chain)
    names, unit = next(((names, unit) for words, names, unit in _RLIMITS if words.search(said)), ((), ""))
    found = [(name, held[name]) for name in names if isinstance(held.get(name), int)]
    lines = [f"the kernel allows it {number} {unit} ({name})" for name, number in found]
    machine = held.get("memory")
    # a limit beyond what the machine has was not met first
    if found and (not isinstance(machine, int) or min(number for _, number in found) < machine):
        category = "limits"
    return category, lines


_RELATIONS = {"cause": "raised from", "part": "of its group:"}


_LIBRARY = lazily(r"site-packages|dist-packages|/lib/python3|^<frozen ")


def _where(chain: List[Dict[str, Any]]) -> str:
    """Return the last place in code that belongs to no library."""
    frames = chain[0].get("frames") or ()
    own = [frame for frame in frames if not _LIBRARY.search(str(frame[0]))]
    return f"at {own[-1][0]}:{own[-1][1]} in {own[-1][2]}" if own else ""


def _kind(category: str) -> str:
    return "communication" if rules.is_echo(category) or category == "rendezvous" else "exception"


def _by_signal(number: int, known: Evidence) -> Verdict:
    words = f"killed by signal {number} ({signal_name(number)})"
    if number == known.warned:
        handles = (
            f"nodectl sent it before the end of its time (--signal), and it has no handler of {signal_name(number)}"
        )
        return Verdict("signal", "time_limit", words, (handles,))
    if number == signal.SIGTERM and known.after_another:
        return Verdict("terminated", "terminated", "ended by its launcher after another rank")
    if number == signal.SIGKILL and known.memory_killer:
        return Verdict("signal", "host_out_of_memory", f"{words}: the kernel's memory killer ended it")
    if number == signal.SIGKILL and known.cpu and _used_up(known.cpu.used_s, known.cpu):
        return Verdict("signal", "limits", f"{words}: {_CPU_TIME}", (_of_cpu(known.cpu.used_s, known.cpu),))
    if number == signal.SIGBUS and any(place == "/dev/shm" for place in known.full):  # noqa: S108
        return Verdict("signal", "shared_memory_full", f"{words}: /dev/shm is full")
    if number == signal.SIGABRT:
        return _by_abort(words, known)
    if number in _CRASHES:
        return _by_crash(words, known)
    if number in _LIMITS:
        return Verdict("signal", "limits", f"{words}: {_LIMITS[number]}")
    if number in _ITS_OWN:
        return Verdict("signal", "interrupted", f"{words}: {_ITS_OWN[number]}")
    killer = () if number != signal.SIGKILL else (known.other_kills or _NO_KILLER, *_limit(known))
    if number == signal.SIGKILL and known.killed_then:
        return Verdict("signal", "host_out_of_memory", f"{words}, {_PERHAPS_KILLER}", killer)
    return Verdict("signal", "killed_from_outside", words, killer)


_NO_KILLER = "nothing tells of the kernel's memory killer"
_PERHAPS_KILLER = "perhaps by the kernel's memory killer, which ended a process of this machine in that moment"


_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP)


_CPU_TIME = "it used up the CPU time that its limit gives it"
_LIMITS: Dict[int, str] = {signal.SIGXFSZ: "a file grew beyond the limit of its size", signal.SIGXCPU: _CPU_TIME}
# the limit is compared with what was counted at ticks, stolen time included: more than what /proc tells later
_NEAR, _NEAR_S = 0.85, 0.5


def _limit(known: Evidence) -> Tuple[str, ...]:
    """Return where it may have used up its CPU time, and its launcher took away how much that was."""
    if known.cpu is None or known.cpu.is_last:
        return ()
    limit_s = known.cpu.limit_s
    return (f"the kernel kills it beyond {limit_s:g} s of CPU time (RLIMIT_CPU); how much it had used is not known",)


def _used_up(used_s: float, cpu: CpuTime) -> bool:
    return used_s >= _NEAR * cpu.limit_s - _NEAR_S


def _of_cpu(used_s: float, cpu: CpuTime) -> str:
    return f"it had used {used_s:.1f} s of CPU time, and the kernel kills it beyond {cpu.limit_s:g} s (RLIMIT_CPU)"


_ITS_OWN: Dict[int, str] = {
    signal.SIGPIPE: "it wrote to a pipe or a connection that its reader had closed",
    signal.SIGALRM: "a timer that it had set itself ran out",
    signal.SIGVTALRM: "a timer that it had set itself ran out",
    signal.SIGPROF: "a timer that it had set itself ran out",
}
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')


def _by_crash(words: str, known: Evidence) -> Verdict:
    """Judge a crash of native code, with the Python that was at work."""
    thread = known.stack.partition("Current thread ")[2].partition("\n\n")[0]
    frames = [(frame[1], frame[2], frame[3]) for frame in _FRAME.finditer(thread)]
    where = _where([{"frames": frames[::-1]}]) or (
        f"at {frames[0][0]}:{frames[0][1]} in {frames[0][2]}" if frames else ""
    )
    return Verdict("signal", "crash", words, (where,) if where else _last_line(known), known.stack)


def _last_line(known: Evidence) -> Tuple[str, ...]:
    """Its last words, where they are its own: people read them first anyway."""
    said = "" if known.shared else _last_words(known.log)
    return (f"its last words: {said} ({LOG_ONLY})",) if said else ()


def _last_words(log: str) -> str:
    lines = (_TAG.sub("", line).strip() for line in reversed(log.splitlines()))
    return next((line for line in lines if line and not _NOT_ITS_OWN.match(line)), "")[:300]


# what libraries write after it: logs of torch, and warnings as Python ends
_NOT_ITS_OWN = lazily(r"\[?[EWIF]\d{3,4}[ :]|\S+:\d+: \w*Warning: |warnings\.warn\(")


def _by_abort(words: str, known: Evidence) -> Verdict:
    """C++ threads of torch abort a process that is ending already, or whose communication broke."""
    exception = "" if known.watched else known.exception
    if exception:
        return _by_log(exception, known.full)
    thrown = _WHAT.search(known.log)
    if thrown:
        message = f"{thrown[1]}: {thrown[2].strip()}"[:_LONGEST]
        category = rules.of_text(message)
        if category != rules.SCRIPT:
            return _by_log(message, known.full)
        return Verdict("signal", "crash", f"{words}: {message}", (f"its last words ({LOG_ONLY})",))
    category = rules.of_text(known.log[-_LONGEST:])
    if category in ("gpu_error", "gpu_out_of_memory"):
        return Verdict("signal", category, words, (f"its last words ({LOG_ONLY})",))
    if rules.is_echo(category):
        said = [_TAG.sub("", line)[:500] for line in known.log.splitlines() if rules.is_echo(rules.of_text(line))]
        text = "\n".join(["aborted by a communication library (gloo or NCCL)", *said[-_LAST_WORDS:]])
        return Verdict("communication", category, text, (f"its last words ({LOG_ONLY})",))
    if known.full:  # what aborts says why, and there was no room for that
        return Verdict("signal", "disk_full", f"{words}: no space is left for {known.full[0]}", (), known.stack)
    if "<no Python frame>" in known.stack and not _FRAME.search(known.stack):
        wound_down = "no Python was at work in it any more: its script had ended"
        return Verdict("signal", "abort_at_exit", words, (wound_down, *_last_line(known)), known.stack)
    return _by_crash(words, known)


def _by_log(exception: str, full: Tuple[str, ...]) -> Verdict:
    category = rules.of_text(exception, full)
    return Verdict(_kind(category), category, exception, (f"the last traceback of its log ({LOG_ONLY})",))


def _by_status(known: Evidence) -> Verdict:
    exception = known.exception
    ended = "ended without a known exit status" if known.code is None else f"exit status {known.code}"
    usage = _usage(known.log) if known.code == _USAGE_STATUS else ""
    if usage:
        return Verdict("exit", "bad_argument", f"{ended}: {usage}", (f"its last words: {usage} ({LOG_ONLY})",))
    if exception and not known.left and known.code in (None, 1):
        verdict = _by_log(exception, known.full)
        return verdict._replace(evidence=(*verdict.evidence, *((_NO_NOTE,) if known.watched else ())))
    printed, whose = known.printed
    if printed and rules.is_echo(rules.of_text(printed)):
        words = f"{ended} after {_first_line(printed)}"
        return Verdict("communication", rules.of_text(printed), words, (f"{whose} ({LOG_ONLY})",))
    hint = () if printed and _last_words(known.log) == _first_line(printed) else _last_line(known)
    hint = (f"its log holds {whose}: {_first_line(printed)} ({LOG_ONLY})", *hint) if printed else hint
    if known.code is not None and known.code > 128 and signal_name(known.code - 128).startswith("SIG"):
        return _by_child(known, ended, hint)
    if known.full:
        return Verdict("exit", "disk_full", ended, hint)
    return _by_last_words(known, ended, hint)


_NO_NOTE = (
    "perhaps it ended by this exception: its Python wrote neither an uncaught exception nor an end without one into"
    " nodectl's notes"
)
# what libraries print before they end a process themselves
_OF_LIBRARIES = ("limits", "host_out_of_memory", "disk_full", "import_error", "version_mismatch")


def _by_last_words(known: Evidence, ended: str, hint: Tuple[str, ...]) -> Verdict:
    """Judge by the last words of a library that ends the process (`libgomp: Thread creation failed`)."""
    said = "" if known.shared or known.printed[0] else _last_words(known.log)
    category = rules.of_text(said) if said and known.code != 0 else rules.SCRIPT
    if category in _OF_LIBRARIES:
        return Verdict("exit", category, f"{ended}; its last words: {said}", hint)
    return Verdict("exit", "exit", ended, hint)


def _by_child(known: Evidence, ended: str, hint: Tuple[str, ...]) -> Verdict:
    """Judge a shell's exit status, where a signal ended the program that it had started."""
    number = (known.code or 0) - 128
    by = f"{ended}: what it had started was killed by {signal_name(number)}"
    if number == signal.SIGKILL and known.memory_killer:
        return Verdict("exit", "host_out_of_memory", by, hint)
    if number == signal.SIGKILL and known.other_kills:
        hint = (known.other_kills, *hint)
    if number == signal.SIGKILL and known.cpu and _used_up(known.cpu.by_children_s, known.cpu):
        used = _of_cpu(known.cpu.by_children_s, known.cpu)
        return Verdict("exit", "limits", f"{by}: {_CPU_TIME}", (used, *hint))
    if number in _LIMITS:
        return Verdict("exit", "limits", f"{by}: {_LIMITS[number]}", hint)
    return Verdict("exit", "exit", by, hint)


_USAGE_STATUS = 2  # of argparse and click


def _usage(log: str) -> str:
    """Return what a parser of arguments complained of."""
    found = list(_USAGE.finditer(log))
    return next((words for match in reversed(found) for words in match.groups() if words), "")


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:500]


def signal_name(number: int) -> str:
    """SIGKILL for 9; the number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


class LauncherWords(NamedTuple):
    """Hold what a launcher said when it ended by itself; `signal` is the one that it had been sent, 0 for none."""

    message: str
    category: str = "launcher"
    evidence: Tuple[str, ...] = ()
    signal: int = 0


_SIGNALLED = lazily(r"SignalException: Process \d+ got signal: (\d+)")


# torchrun's own log, before it ends its ranks; Python 3.11 prints the number
_RECEIVED = lazily(r"Received (?:Signals\.)?(SIG\w+|\d+) death signal")


def signal_of_launcher(output: str) -> int:
    """Return the signal by which torchrun was asked to end, by its own log; 0 for none."""
    received = _RECEIVED.search(output)
    if received is None:
        return 0
    return int(received[1]) if received[1].isdigit() else int(getattr(signal, received[1], 0))


def launcher_words(output: str) -> LauncherWords:
    """Return the launcher's own exception, or its last line."""
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
