"""A site's own checks: the executables of `checks.d/` beside its inventory, what they ask for, and how they are run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodectl.checks.check import Check
from nodectl.common.natural import natural
from nodectl.common.paths import refuse_open
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.facts.look import site_command
from nodectl.model.host import Host
from nodectl.model.recording import DEADLINE_S, SITE, Command
from nodectl.recordings.collect import BUDGET_S

FOLDER = "checks.d"
_LIMIT_S = 20
_LONGEST_S = BUDGET_S - 2 * DEADLINE_S
_MOST_BYTES = 32 << 20
# all run at the same time, and share what the collector takes of a host
_MOST = 100
# where a file says what it asks for; what is further down is the program
_HEAD_LINES = 40
_HEADER = re.compile(r"\s*(?:#|//|--|;|%)+\s*nodectl:(.*)")
_SECONDS = re.compile(r"([0-9]{1,5})\s*(s|m|)")
_SUFFIX = re.compile(r"\.(?:sh|bash|py|pl|rb)$")
_ASKS = ("timeout", "hosts", "about")
_RUN_THERE = "what it holds runs on nodes"
_KEPT_OUT = "hidden files, backups (name~), folders and READMEs are left out"


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """One file of the folder; `groups` of the inventory are those whose hosts it is for, empty for all hosts."""

    id: str
    path: Path
    program: bytes = field(repr=False)
    about: str = ""
    limit_s: int = _LIMIT_S
    groups: tuple[str, ...] = ()

    def is_for(self, host: Host) -> bool:
        """Return whether the host is in one of its groups."""
        host_groups = host.variables.get("group_names") or ()
        return not self.groups or (
            isinstance(host_groups, Sequence) and not {"all", *host_groups}.isdisjoint(self.groups)
        )


def site_checks(inventory_sources: Sequence[str]) -> tuple[SiteCheck, ...]:
    """Read the checks next to the inventories; UsageError with the file, what is wrong with it, and what to do."""
    beside = (Path(source).parent / FOLDER for source in inventory_sources if "," not in source)
    checks: dict[str, SiteCheck] = {}
    for folder in {folder.resolve(): folder for folder in beside if folder.is_dir()}.values():
        for check in _read_folder(folder):
            if check.id in checks:
                reason = f"{checks[check.id].path} and {check.path} are both called {check.id}"
                raise UsageError(reason, "rename one of them")
            checks[check.id] = check
            if len(checks) > _MOST:
                raise UsageError(f"{folder} holds more than {_MOST} checks", "let one file answer for several things")
    return tuple(checks.values())


def commands_on(host: Host, checks: Sequence[SiteCheck]) -> tuple[Command, ...]:
    """Return what runs those on the host that are for it."""
    return tuple(
        site_command(check.id, check.program, host=host.name, limit_s=check.limit_s)
        for check in checks
        if check.is_for(host)
    )


def for_nobody(checks: Sequence[SiteCheck], hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return what is to be said of checks that are for none of the hosts: a group may be misspelt."""
    return tuple(
        f"{check.path.name}: hosts={','.join(check.groups)}: none of the hosts is in such a group"
        for check in checks
        if not any(check.is_for(host) for host in hosts)
    )


def listed_as(check: SiteCheck) -> Check:
    """Return the check as `health --list` has it."""
    where = f" of {', '.join(check.groups)}" if check.groups else ""
    about = f"{FOLDER}/{check.path.name}{where}{': ' if check.about else ''}{check.about}"
    return Check(check.id, f"{about}; unknown: no answer within {check.limit_s} s, or none that can be read")


def _read_folder(folder: Path) -> Iterator[SiteCheck]:
    try:
        refuse_open(folder, _RUN_THERE)
        paths = sorted(folder.iterdir(), key=lambda path: natural(path.name))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}", "make it readable to you") from error
    for path in paths:
        left_out = path.name.startswith(".") or path.name.endswith("~") or path.name.upper().startswith("README")
        if not left_out and not path.is_dir():
            yield _read_check(path)


def _read_check(path: Path) -> SiteCheck:
    if not path.is_file():
        raise UsageError(f"{path} is not a plain file", "take it away")
    try:
        refuse_open(path, _RUN_THERE)
        is_executable, program = path.stat().st_mode & 0o111, path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "take it away, or make it readable to you") from error
    if not is_executable:
        raise UsageError(f"{path} is not executable", f"chmod +x it, or take it away; {_KEPT_OUT}")
    if len(program) > _MOST_BYTES:
        raise UsageError(f"{path} has more than {_MOST_BYTES >> 20} MiB", "put what it needs on the nodes")
    if not re.match(rb"#!\s*/|\x7fELF", program):
        raise UsageError(
            f"{path}: a check is a program, and this one does not begin with #!/…", "begin it with #!/bin/sh"
        )
    name = re.sub(r"[^a-z0-9]+", "_", _SUFFIX.sub("", path.name.lower())).strip("_")
    if not name or len(name) > 60:
        raise UsageError(f"{path}: its name makes no id", "give it a name of a-z, 0-9, - and _, up to 60 of them")
    return _with_header(SiteCheck(SITE + name, path, program))


def _with_header(check: SiteCheck) -> SiteCheck:
    lines = check.program.decode("utf-8", errors="replace").splitlines()[:_HEAD_LINES]
    for number, line in enumerate(lines, start=1):
        if match := _HEADER.match(line):
            key, is_pair, value = (part.strip() for part in match[1].partition("="))
            try:
                check = _asking(check, key, value if is_pair else "")
            except ValueError as error:
                raise UsageError(f"{check.path}: line {number}: {error}", "write # nodectl: timeout=20s") from None
    return check


def _asking(check: SiteCheck, key: str, value: str) -> SiteCheck:
    if key not in _ASKS:
        raise ValueError(f"there is no such key: {key!r}; {meant(key, _ASKS)}there are {', '.join(_ASKS)}")
    if not value:
        raise ValueError(f"{key} has no value")
    if key == "about":
        return replace(check, about=value)
    if key == "hosts":
        return replace(check, groups=tuple(name.strip() for name in value.split(",") if name.strip()))
    time = _SECONDS.fullmatch(value)
    limit_s = int(time[1]) * (60 if time[2] == "m" else 1) if time else 0
    if not 1 <= limit_s <= _LONGEST_S:
        raise ValueError(f"timeout={value}: a time from 1s to {_LONGEST_S}s")
    return replace(check, limit_s=limit_s)
