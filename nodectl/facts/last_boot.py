"""How the boot before this one ended: what the journal, wtmp, crash records and the firmware tell of it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodectl.facts.base import Fact, matches, output, shell
from nodectl.facts.kernel import DMESG
from nodectl.model.recording import Command, Recording

_JOURNAL = ("journalctl", "-b", "-1", "-n", "200", "-o", "short-unix", "--no-pager")
_PSTORE = ("ls", "-l", "--full-time", "/sys/fs/pstore")
_SHOW = shell("last-boot", journal=" ".join(_JOURNAL), pstore=" ".join(_PSTORE))
_COMMAND = Command("last-boot", ("sh", "-c", _SHOW), deadline_s=20, hardware=True, sudo=(_JOURNAL, _PSTORE))
_LINE = re.compile(r"(booted|journal|line|end|wtmp|dump|job) ?(.*)")
_PANIC = re.compile(r"kernel: .*(?:[Kk]ernel panic|\bOops\b|\bBUG: (?!soft lockup))")
_HOT = re.compile(r"critical temperature reached|thermal (?:pin|limit)|THERMTRIP", re.IGNORECASE)
_CHECKED = re.compile(r"[Mm]achine [Cc]heck|Hardware Error|sync flood|uncorrected error|BERT: Error records")
_LOCKED = re.compile(r"soft lockup|hard LOCKUP|watchdog timer expired|watchdog: .*did not stop")
_ORDERLY = re.compile(
    r"systemd-shutdow|System is (?:rebooting|powering|halting)|The system will (?:reboot|power|halt)"
    r"|Shutting down|Rebooting|Powering off|Reached target|Journal stopped"
)
# what the kernel of this boot says of the end of the last: AMD's register, and the firmware's record of errors
_REASON = re.compile(r"Previous system reset reason \[0x[0-9a-f]+\]: .*|BERT: Error records from previous boot")
# a panic is written while the machine goes down, a record of the firmware's is put away when it is up again
_BEFORE_S, _AFTER_S = 120.0, 900.0
# what was long before the last line did not end the boot, nor did an error that was mended
_NEAR_S = 3600.0
_MENDED = re.compile(r"\b[Cc]orrected error|severity: (?:corrected|info)")


@dataclass(frozen=True, slots=True)
class LastBoot:
    """How the last boot ended, by what tells of it; `way` is `first` if no earlier boot is on record.

    Ways: clean, panic, watchdog, thermal, hardware, stopped, first, unknown. Times in seconds since 1970; `ended_at` is
    of the journal's last line. `journal` is kept, volatile, slow or denied; `reason` the kernel's word on the reset.
    """

    way: str
    evidence: str
    reason: str
    journal: str
    booted_at: float
    ended_at: float | None = None
    jobs: tuple[str, ...] = ()


def _read(recording: Recording) -> LastBoot:
    said: dict[str, list[str]] = {}
    text = output(recording, _COMMAND.key, "a container has no boot of its own")
    for match in matches(_LINE, text, _COMMAND.key):
        said.setdefault(match[1], []).append(match[2])
    booted_at = float(said["booted"][0])
    ended_at = float(said["end"][-1]) if "end" in said else None
    dmesg = recording.entries.get(DMESG.key)
    reason = _REASON.search(dmesg.stdout) if dmesg else None
    since = (ended_at or booted_at) - _BEFORE_S
    dumps = [path for at, path in _timed(said.get("dump", ())) if since <= at <= booted_at + _AFTER_S]
    way, evidence = _way(said, dumps, reason[0] if reason else "")
    journal = said["journal"][-1]
    jobs = tuple(name for at, name in _timed(said.get("job", ())) if at <= booted_at)
    return LastBoot(way, evidence, reason[0] if reason else "", journal, booted_at, ended_at, jobs)


def _timed(rows: Iterable[str]) -> Iterator[tuple[float, str]]:
    for row in rows:
        at, _, name = row.partition(" ")
        yield float(at), name


def _way(said: Mapping[str, Sequence[str]], dumps: Sequence[str], reason: str) -> tuple[str, str]:
    end = float(said["end"][-1]) if "end" in said else 0.0
    rows = [(at, text) for at, text in _timed(said.get("line", ())) if text.startswith(("kernel: ", "systemd"))]
    lines = [text for at, text in rows if at >= end - _NEAR_S and not _MENDED.search(text)]
    orderly = said.get("wtmp", ())[:2] == ["reboot", "shutdown"] or any(map(_ORDERLY.search, lines))

    def last(pattern: re.Pattern[str]) -> str:
        return next((line for line in (reason, *reversed(lines)) if pattern.search(line)), "")

    # a machine may live on after an oops
    if dumps or (last(_PANIC) and not (orderly and "Kernel panic" not in last(_PANIC))):
        return "panic", dumps[-1] if dumps else last(_PANIC)
    if last(_HOT):
        return "thermal", last(_HOT)
    if orderly:
        return "clean", next(filter(_ORDERLY.search, lines), "wtmp has its shutdown")
    for way, pattern in (("watchdog", _LOCKED), ("hardware", _CHECKED)):
        if last(pattern):
            return way, last(pattern)
    if "end" in said:
        return "stopped", "the journal simply stops"
    if said.get("wtmp", ())[:2] == ["reboot", "reboot"]:
        return "stopped", "wtmp has no shutdown before this boot"
    return ("first", "no earlier boot is on record") if said["journal"] == ["kept"] else ("unknown", "")


LAST_BOOT_FACT = Fact("last_boot", (_COMMAND, DMESG), _read, lambda boot: boot.way, row=312, quiet=True)
