"""Whether a live host holds what its tuning sets: kernel settings, limits, NCCL's files and their lines."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NOT_SETTABLE, Check, Subject, failed_unless, judges_fact, provision, warning_unless
from nodectl.common.resources import node_module
from nodectl.facts.base import whole
from nodectl.facts.host_files import NcclFiles
from nodectl.facts.settings import LoginLimits, SessionLimits, Sysctl
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.nccl import MAX_CHARS, is_debug_variable, version_key, why_no_name, why_no_value

ORDER = 10


# NCCL user guide, troubleshooting: glibc gives threads 2 MB of an unlimited stack; from 2.28 on NCCL mends that itself
_STACK_MENDED = (2, 28)


KERNEL_SETTINGS = Check(
    "kernel_settings",
    fires="another value than the tuning's (with never_lower: a lower number), or no such setting",
    roles=("kernel_settings",),
)


@judges_fact(
    dict,
    KERNEL_SETTINGS,
    reads=("sysctl",),
    unread="the tuning's values",
    or_absent=True,
    where=lambda host: bool(host.wanted and host.wanted.tuning.sysctl),
)
def kernel_settings(host: Subject, live: dict[str, Sysctl]) -> Iterator[Finding]:
    """Each setting is what the role kernel_settings makes of it; one that no kernel has fails."""
    for key, setting in sorted(host.wanted.tuning.sysctl.items()) if host.wanted else ():
        yield _kernel_setting(host, key, setting.value, setting.never_lower, live.get(key))


def _kernel_setting(host: Subject, key: str, wanted: str, never_lower: bool, live: Sysctl | None) -> Finding:
    check = KERNEL_SETTINGS
    if live is None:
        remedy = f"run `sysctl {key}` there"
        return host.finding(check, Status.UNKNOWN, key, expected=wanted, actual="not read", remedy=remedy)
    value = live.value or ""
    if live.value is not None and is_held(value, wanted, never_lower):
        return host.finding(check, Status.OK, key, expected=wanted, actual=value)
    if live.unknown:
        remedy = f"correct the name of {key} in the tuning profile, or load on the host what brings it"
        return host.finding(check, Status.FAILED, key, expected=wanted, actual=live.fixed, remedy=remedy)
    if live.fixed:
        return host.finding(check, Status.SKIPPED, key, expected=wanted, actual=f"{NOT_SETTABLE}: {live.fixed}")
    remedy = provision("kernel_settings")
    return host.finding(check, Status.FAILED, key, expected=wanted, actual=value, remedy=remedy)


def is_held(live: str, wanted: str, never_lower: bool) -> bool:
    """Return whether the role kernel_settings would leave the value as it is."""
    return bool(node_module("kernel_values").is_held(live, wanted, never_lower))


LIMITS = Check(
    "limits",
    fires="lower; unlimited stack with an NCCL below 2.28",
    roles=("limits",),
)


@judges_fact(
    SessionLimits,
    LIMITS,
    reads=("limits", "login_limits", "sysctl"),
    unread="the limits of a session",
    or_absent=True,
)
def limits(host: Subject, live: SessionLimits) -> Iterator[Finding]:
    """Compare a fresh login's limits, else this session's, with the tuning's; NCCL must live with the stack."""
    wanted = host.wanted.tuning.limits if host.wanted else {}
    for name, setting in sorted(wanted.items()):
        yield _limit(host, name, setting.value, live)
    nccl = host.wanted.stack.nccl if host.wanted else None
    if nccl:
        crashes = live.stack == "unlimited" and version_key(nccl) < _STACK_MENDED
        remedy = "remove `stack unlimited` from /etc/security/limits.conf and limits.d"
        expected = f"a limit: threads of NCCL {nccl} crash on an unlimited stack"
        yield host.finding(
            LIMITS, warning_unless(not crashes), "stack", expected=expected, actual=live.stack, remedy=remedy
        )


def _limit(host: Subject, name: str, wanted: str, session: SessionLimits) -> Finding:
    login = host.fact("login_limits", LoginLimits)
    session_limit = session.memlock if name == "memlock" else session.nofile
    actual = (login.memlock if name == "memlock" else login.nofile) if login else session_limit
    most = most_files(host) if name == "nofile" else None
    if actual is None:
        remedy = "look at PAM: `runuser -l`"
        actual = "a fresh session could not be opened to look at it"
        return host.finding(LIMITS, Status.UNKNOWN, name, expected=wanted, actual=actual, remedy=remedy)
    if not _is_enough(actual, wanted):
        reason = "" if session.raisable else f"{actual}, root here may not raise it"
        if most is not None and not _is_enough(str(most), wanted):
            reason = f"its fs.nr_open is {most}"
        if reason:
            return host.finding(LIMITS, Status.SKIPPED, name, expected=wanted, actual=f"{NOT_SETTABLE}: {reason}")
        remedy = f"{provision('limits')}, then log in anew"
        return host.finding(LIMITS, Status.FAILED, name, expected=wanted, actual=actual, remedy=remedy)
    if login and login.uses_pam is False and not _is_enough(session_limit, wanted):
        actual, remedy = f"{session_limit} in SSH sessions: sshd has UsePAM no", "set UsePAM yes in sshd_config"
        return host.finding(LIMITS, Status.WARNING, name, expected=wanted, actual=actual, remedy=remedy)
    return host.finding(LIMITS, Status.OK, name, expected=wanted, actual=actual)


def _is_enough(actual: str, wanted: str) -> bool:
    return actual == "unlimited" or (wanted != "unlimited" and int(actual) >= int(wanted))


def most_files(host: Subject) -> int | None:
    """Return the kernel's own limit for one process, above which nobody can raise it."""
    setting = (host.fact("sysctl", dict) or {}).get("fs.nr_open")
    return whole(setting.value) if setting else None


NCCL_FILE = Check(
    "nccl_file",
    fires="missing, other value, not asked for, or overridden",
    expected="no such line",
    roles=("nccl_env",),
)
NCCL_DEBUG = Check(
    "nccl_debug",
    fires="warning wherever one stands",
    expected="not persisted: of NCCL's debugging class",
    remedy="keep it only while it is measured: NVIDIA says it may cost speed or hang a job",
    roles=("nccl_env",),
)


@judges_fact(NcclFiles, NCCL_FILE, NCCL_DEBUG, reads=("nccl_files",), unread="NCCL's files", or_absent=True)
def nccl_file(host: Subject, files: NcclFiles) -> Iterator[Finding]:
    """NCCL's files as NCCL reads them, against the profile; each debugging variable is a warning of its own."""
    system, user = parse_nccl(files.system or ""), parse_nccl(files.user or "")
    remedy = provision("nccl_env")
    wanted = host.wanted.nccl_env if host.wanted else {}
    for name, value in sorted(wanted.items()):
        is_held = system.get(name) == value
        actual = visible(system[name]) if name in system else "not in /etc/nccl.conf"
        yield host.finding(NCCL_FILE, failed_unless(is_held), name, expected=value, actual=actual, remedy=remedy)
        if user.get(name, value) != value:
            actual = f"{visible(user[name])}, by {files.user_path}, which goes before /etc/nccl.conf"
            way = f"remove {name} from {files.user_path} there"
            yield host.finding(NCCL_FILE, Status.WARNING, f"{name} of user", expected=value, actual=actual, remedy=way)
    for name in sorted(set(system) - set(wanted)) if host.wanted else ():
        yield host.finding(NCCL_FILE, Status.WARNING, visible(name), actual=visible(system[name]), remedy=remedy)
    for name, value in sorted({**system, **user}.items()):
        if is_debug_variable(name):
            yield host.finding(NCCL_DEBUG, Status.WARNING, name, actual=visible(value))


def visible(text: str) -> str:
    """In quotes where blanks belong to it: NCCL takes them as they stand."""
    return text if text == text.strip() and text else f"'{text}'"


def parse_nccl(text: str) -> dict[str, str]:
    """Name and value as NCCL takes them: cut, untrimmed, the first writer wins, `#` only in the first column."""
    variables: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            variables.setdefault(name[:MAX_CHARS], value[:MAX_CHARS])
    return variables


# Lines of NCCL's files that NCCL reads otherwise than whoever wrote them: it trims nothing and knows no quotes.

NCCL_LINES = Check(
    "nccl_lines",
    fires="warning: blanks or quotes that NCCL takes literally, a name or a value that NCCL does not know, no `=`",
    expected="NAME=value: NCCL trims nothing and knows no quotes",
    remedy="correct the line; `nodectl provision --tags nccl_env` writes /etc/nccl.conf anew",
    roles=("nccl_env",),
)


@judges_fact(NcclFiles, NCCL_LINES, reads=("nccl_files",), unread="NCCL's files", or_absent=True)
def nccl_lines(host: Subject, files: NcclFiles) -> Iterator[Finding]:
    """Each line means to NCCL what it looks like."""
    misread = (
        host.finding(NCCL_LINES, Status.WARNING, f"{path} line {number}", actual=f"{line[:200]!r}: {reason}")
        for path, text in sorted(files.texts.items())
        for number, line in enumerate(text.split("\n"), 1)
        if (reason := why_misread(line))
    )
    yield from host.all_of(NCCL_LINES, misread, actual="NCCL reads every line as it is written")


def why_misread(line: str) -> str:
    """Return what NCCL makes of the line that nobody means by it; empty if it takes the line as meant."""
    name, equals, value = line.partition("=")
    if not line.strip() or line.startswith("#"):
        return ""
    if line.lstrip().startswith("#"):
        return "# is a comment in the first column only"
    if not equals:
        return "no `=`: NCCL passes over it"
    if name != name.strip():
        return "a blank is part of the name"
    if not value.strip():
        return "the value is blank"
    if value != value.strip():
        return "a blank is part of the value"
    if set(value[:1] + value[-1:]) & set("\"'"):
        return "the quotes are part of the value"
    if name.startswith("export "):
        return "`export` is part of the name"
    return why_no_name(name) or why_no_value(name, value)
