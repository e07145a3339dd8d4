"""The way to the hosts: whether they let us in, what sudo does there, their Python, and their clocks against ours."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nodectl.checks.system.basics import CLOCK, clock
from nodectl.facts.base import script, variable
from nodectl.facts.catalogue import root_argvs
from nodectl.health.host import judge_answer, order_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Command, Entry, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import INSTALL_PYTHON, LEAST_PYTHON

# what differs from host to host in a complaint that is the same: its address before it, and the key that it shows
_LABEL = re.compile(r"^[^\s@]+@[^\s]+: ")
_KEY = re.compile(r",? (?:now )?[\w@.-]+ SHA256:[\w+/=]+")
BECOME_PASSWORDS = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
_LOGIN_S = 30.0
_VERSION = "import sys; print(sys.executable, *sys.version_info[:3])"
_DENIED = ("not in the sudoers", "may not run", "not allowed")
# prints one word, or what sudo says; as a user who may run nothing by it, sudo reports that to root, as for `health`
_SUDO = """
[ "$(id -u)" = 0 ] && { echo root; exit; }
command -v sudo >/dev/null || { echo missing; exit; }
LC_ALL=C sudo -n true 2>&1 && { echo free; exit; }
"""
# those of them that name no device, each where it is installed
LOOKS = "".join(
    f"! command -v {argv[0]} >/dev/null || sudo -n -l -- {shlex.join(argv)} >/dev/null 2>&1 || exit 0\n"
    for argv in root_argvs()
    if not any("[" in word for word in argv)
)


def examine(
    hosts: Sequence[Host],
    transport: Transport,
    forks: int,
    profile_dirs: Sequence[Path],
    *,
    password_given: bool,
    least_python: tuple[int, ...],
) -> Iterator[Finding]:
    """All hosts at once, one round trip each; the findings in the hosts' order.

    `password_given`: sudo's password was typed. `least_python` is what Ansible's modules need.
    """

    def one(host: Host) -> list[Finding]:
        return list(_one(host, transport, profile_dirs, password_given=password_given, least_python=least_python))

    by_name = {host.name: findings for host, findings in fan_out(hosts, one, forks)}
    for host in hosts:
        yield from by_name[host.name]


def _one(
    host: Host,
    transport: Transport,
    profile_dirs: Sequence[Path],
    *,
    password_given: bool,
    least_python: tuple[int, ...],
) -> Iterator[Finding]:
    order = order_of(host, {}, profile_dirs, judged_by=(clock,))
    # the time of a login is no part of how long the host takes to tell its clock
    reached = transport.run(host, ["true"], timeout_s=_LOGIN_S)
    named = variable(host, "ansible_python_interpreter", "")
    python = Command("doctor_python", (named if named.startswith("/") else "python3", "-ESc", _VERSION))
    commands = (*order.commands, script("doctor_sudo", f"{_SUDO}{LOOKS}echo looks"), python)
    answer = reached if reached.outcome is not Outcome.RAN else collect(transport, host, commands)
    for finding in judge_answer(order, answer).findings:
        # who keeps the host's clock right is health's to say: here it is held against ours
        if finding.check == CLOCK.id and finding.subject != "offset":
            continue
        # who names no profile is asked for one by `health`; nothing of this machine is wrong with it
        unset = finding.check == "profiles" and finding.status is Status.UNKNOWN and not order.wanted.refused
        yield replace(finding, status=Status.WARNING) if unset else _alike(finding, answer)
    if isinstance(answer, Recording):
        actual = "answers" if host.connection == "ssh" else "is this machine"
        yield Finding(host.name, "reach", Status.OK, actual=actual)
        yield from _sudo(host, answer.entries.get("doctor_sudo"), password_given=password_given)
        yield _python(host, answer.entries.get("doctor_python"), least_python)


def _alike(finding: Finding, answer: Recording | CommandResult) -> Finding:
    """Hosts that cannot be reached for one reason say it in the same words; what they said is the evidence."""
    if isinstance(answer, Recording) or finding.check != "reach":
        return finding
    text = _KEY.sub("", _LABEL.sub("", finding.actual))
    return replace(finding, actual=text, evidence=finding.actual if text != finding.actual else "")


def _sudo(host: Host, entry: Entry | None, *, password_given: bool) -> Iterator[Finding]:
    if variable(host, "ansible_become_method", "sudo") != "sudo":
        yield _finding(host, Status.SKIPPED, "the inventory names another way to become root")
        return
    lines = entry.stdout.split("\n") if entry is not None else [""]
    given = password_given or any(host.variables.get(name) for name in BECOME_PASSWORDS)
    yield _to_root(host, lines[0].strip(), given=given)
    if lines[0] not in ("root", "free") and "looks" not in lines:
        yield _finding(
            host,
            Status.WARNING,
            "health, facts and record will not tell what only root sees",
            f"nodectl sudoers --user {_login(host)}, as /etc/sudoers.d/nodectl there",
            expected="the commands that only root may look by, without a password",
            subject="looking",
        )


def _login(host: Host) -> str:
    with suppress(KeyError):  # a number without a login
        if host.connection == "local" and not host.user:
            return pwd.getpwuid(os.geteuid()).pw_name
    return host.user or "LOGIN"


def _to_root(host: Host, word: str, *, given: bool) -> Finding:
    drop_in = f"nodectl sudoers --user {_login(host)} --provision password, as /etc/sudoers.d/nodectl there"
    match word:
        case "root":
            return _finding(host, Status.OK, "the login is root")
        case "free":
            return _finding(host, Status.OK, "without a password")
        case "missing":
            remedy = "log in as root (ansible_user), or install sudo there"
            return _finding(host, Status.WARNING, "not installed, and the login is not root", remedy)
        case _ if "password is required" in word:
            if given:
                return _finding(host, Status.OK, "with a password, which is given")
            # it says so to a login that may not use it, too, until a password is given
            return _finding(host, Status.WARNING, "wants a password", f"nodectl provision -K; or {drop_in}")
        case _ if any(text in word for text in _DENIED):
            return _finding(host, Status.WARNING, "the login may not use it", drop_in)
    actual = word or "it did not answer"
    return _finding(host, Status.UNKNOWN, actual, f"nodectl exec -l {host.name} -- sudo -n true")


def _finding(
    host: Host, status: Status, actual: str, remedy: str = "", *, expected: str = "root, by sudo", subject: str = ""
) -> Finding:
    return Finding(host.name, "sudo", status, subject, expected=expected, actual=actual, remedy=remedy)


def _python(host: Host, entry: Entry | None, least: tuple[int, ...]) -> Finding:
    needed = max(LEAST_PYTHON, least)
    expected = f"Python {'.'.join(map(str, needed))} or newer"
    tokens = entry.stdout.split() if entry is not None else []
    version = tuple(int(word) for word in tokens[-3:] if word.isdigit())
    if len(version) == 3:
        actual, suffices = f"{'.'.join(map(str, version))}", version >= needed
    else:
        actual, suffices = f"no {entry.argv[0] if entry and entry.argv else 'python3'}", False
    status = Status.OK if suffices else Status.FAILED
    remedy = "" if suffices else f"{INSTALL_PYTHON} there, or name one: ansible_python_interpreter"
    return Finding(host.name, "python", status, expected=expected, actual=actual, remedy=remedy)
