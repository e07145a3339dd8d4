#!/usr/bin/python
"""Ansible module: the limits that a fresh login, this SSH session and systemd's services really get."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding, not_settable

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    Run = Callable[[list[str]], tuple[int, str, str]]
    Limits = Mapping[str, str]
    Finding = dict[str, str]

DOCUMENTATION = r"""
module: session_limits
short_description: Compare the live limits of logins and services with what should be
description:
  - Opens a fresh PAM session and reads its limits; asks systemd and logind where they run.
  - With `apply` it looks at systemd and logind only, and lets them read their files anew where they need to.
  - What a host cannot hold, or what its SSH server does not apply, is reported and does not fail.
author: The nodectl authors
options:
  user: {description: Whose session., type: str, required: true}
  memlock: {description: Locked memory in KiB or unlimited., type: str, required: true}
  nofile: {description: Open files or unlimited., type: str, required: true}
  apply: {description: Let systemd and logind read their files anew where they must., type: bool, default: false}
  nccl: {description: The NCCL that jobs load; empty where there is none., type: str, default: ''}
"""
EXAMPLES = r"""
- session_limits: {user: root, memlock: unlimited, nofile: "1048576"}
"""
RETURN = r"""
findings: {description: What was looked at., type: list, elements: dict, returned: always}
"""

OPTIONS = {"memlock": "l", "nofile": "n"}
SYSTEMD = {"memlock": ("DefaultLimitMEMLOCK", 1024), "nofile": ("DefaultLimitNOFILE", 1)}
CAP_SYS_RESOURCE = 24
# NCCL user guide, troubleshooting: glibc gives threads 2 MB of an unlimited stack; from 2.28 on NCCL mends that itself
STACK_MENDED = (2, 28)
CHECK, REMEDY = "limits", "run `nodectl provision --tags limits`, then log in anew"
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "RemoveIPC")


def number(text: str) -> float:
    """A limit as a number; unlimited is above all numbers."""
    return float("inf") if text in ("unlimited", "infinity") else float(text)


def limits_of(run: Run, command: list[str]) -> Limits:
    """{name: lower of soft and hard} in limits.conf's units, and the soft `stack`; {} where no shell could start."""
    script = "; ".join(f"ulimit -S{flag}; ulimit -H{flag}" for flag in OPTIONS.values()) + "; ulimit -Ss"
    status, out, _ = run([*command, script])
    count = 2 * len(OPTIONS) + 1
    words = out.split()[-count:]
    if status != 0 or len(words) < count:
        return {}
    found = {name: min(words[2 * i : 2 * i + 2], key=number) for i, name in enumerate(OPTIONS)}
    return {**found, "stack": words[-1]}


def may_raise_limits(status_text: str) -> bool:
    """The process of this /proc/PID/status may go above hard limits."""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", status_text, re.MULTILINE)
    return bool(capabilities and int(capabilities.group(1), 16) >> CAP_SYS_RESOURCE & 1)


def judge(
    wanted: Limits, fresh: Limits, session: Limits, uses_pam: bool | None, may_raise: bool, max_files: int
) -> list[Finding]:
    """Pure: a finding a limit, for logins; `uses_pam` None is an SSH server that could not be asked."""
    return [_judged(name, value, fresh, session, uses_pam, may_raise, max_files) for name, value in wanted.items()]


def _judged(
    name: str, value: str, fresh: Limits, session: Limits, uses_pam: bool | None, may_raise: bool, max_files: int
) -> Finding:
    subject = f"login {name}"
    if name == "nofile" and number(value) > max_files:
        return not_settable(CHECK, subject, value, f"its fs.nr_open is {max_files}")
    if name not in fresh:
        actual = "a fresh session could not be opened to look at it"
        return finding(CHECK, "unknown", subject, expected=value, actual=actual, remedy="look at PAM: `runuser -l`")
    if number(fresh[name]) < number(value):
        if not may_raise:
            return not_settable(CHECK, subject, value, f"it has {fresh[name]}, and root here lacks CAP_SYS_RESOURCE")
        return finding(CHECK, "failed", subject, expected=value, actual=fresh[name], remedy=REMEDY)
    if name in session and number(session[name]) < number(value) and uses_pam is False:
        actual = f"{session[name]} in SSH sessions: sshd has UsePAM no"
        return finding(CHECK, "warning", subject, expected=value, actual=actual, remedy="set UsePAM yes in sshd_config")
    return finding(CHECK, "ok", subject, expected=value, actual=fresh[name])


def judge_stack(fresh: Limits, nccl: str) -> list[Finding]:
    """Pure: an unlimited stack crashes NCCL's threads before 2.28; nothing to say where jobs load no NCCL."""
    version = re.match(r"(\d+)\.(\d+)", nccl)
    if not version or "stack" not in fresh:
        return []
    expected = f"a limit, such as 8192: NCCL {nccl}'s threads crash on an unlimited stack"
    bad = fresh["stack"] == "unlimited" and (int(version.group(1)), int(version.group(2))) < STACK_MENDED
    remedy = "remove `stack unlimited` from /etc/security/limits.conf and limits.d"
    status = "warning" if bad else "ok"
    return [finding(CHECK, status, "login stack", expected=expected, actual=fresh["stack"], remedy=remedy)]


def sshd_command(title: str) -> list[str]:
    """The command line of a listening sshd, which it shows as `sshd: COMMAND [listener] …`; [] for other processes."""
    shown = re.match(r"sshd: (/.*?) \[listener\]", title)
    plain = re.match(r"/\S*/sshd( .*)?$", title.strip())
    return shlex.split(shown.group(1) if shown else plain.group(0) if plain else "")


def sshd_uses_pam(run: Run) -> bool | None:
    """UsePAM of the sshd that serves this session, or None where it cannot be told."""
    pid = os.getppid()
    while pid > 0:
        process = Path("/proc", str(pid))
        try:
            command = sshd_command((process / "cmdline").read_text().replace("\0", " "))
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        if command:
            status, out, _ = run([command[0], "-T", *(word for word in command[1:] if word not in ("-D", "-e"))])
            return "usepam yes" in out.splitlines() if status == 0 else None
        pid = parent
    return None


def systemd_findings(run: Run, wanted: Limits) -> list[Finding]:
    """What systemd gives its services, and whether logind removes shared memory; live, by asking them."""
    if not Path("/run/systemd/system").is_dir():
        return [not_settable(CHECK, "services", "", "systemd is not process 1")]
    found = []
    for name, (field, unit) in SYSTEMD.items():
        status, out, err = run(["systemctl", "show", "--value", "--property", field])
        text, expected = out.strip(), f"{field} for {name} {wanted[name]}"
        if status != 0:
            found.append(finding(CHECK, "unknown", "services " + name, expected=expected, actual=err.strip()))
            continue
        low = number(text) < number(wanted[name]) * unit
        verdict = "failed" if low else "ok"
        found.append(finding(CHECK, verdict, "services " + name, expected=expected, actual=text, remedy=REMEDY))
    return [*found, removes_ipc(run)]


def removes_ipc(run: Run) -> Finding:
    """logind's own word on RemoveIPC; where logind does not run nobody removes anything."""
    subject, expected = "RemoveIPC", "no: a job keeps its shared memory when its login ends"
    if run(["systemctl", "is-active", "--quiet", "systemd-logind.service"])[0] != 0:
        return finding(CHECK, "ok", subject, expected=expected, actual="logind does not run")
    status, out, err = run(["busctl", "get-property", *LOGIND])
    if status != 0:
        actual = err.strip() or "busctl gave no answer"
        return finding(CHECK, "unknown", subject, expected=expected, actual=actual, remedy="look at systemd-logind")
    verdict = "ok" if out.split() == ["b", "false"] else "failed"
    return finding(CHECK, verdict, subject, expected=expected, actual=out.strip(), remedy=REMEDY)


def apply(module: AnsibleModule, run: Run, wanted: Limits) -> None:
    """From the live difference, so that a run killed after the files were written is finished by the next."""
    before = systemd_findings(run, wanted)
    wrong = {found["subject"] for found in before if found["status"] == "failed"}
    if wrong and module.check_mode:
        module.exit_json(changed=True, findings=before)
    if wrong - {"RemoveIPC"}:
        module.run_command(["systemctl", "daemon-reexec"], check_rc=True)
    if "RemoveIPC" in wrong:
        module.run_command(["systemctl", "try-restart", "systemd-logind.service"], check_rc=True)
    after = systemd_findings(run, wanted) if wrong else before
    module.exit_json(changed=after != before, findings=after)


def main() -> None:
    """Look, compare, report."""
    text = {"type": "str", "required": True}
    spec = {
        "user": text,
        "memlock": text,
        "nofile": text,
        "nccl": {"type": "str", "default": ""},
        "apply": {"type": "bool", "default": False},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    run: Run = module.run_command
    wanted: dict[str, str] = {name: module.params[name] for name in OPTIONS}
    if module.params["apply"]:
        apply(module, run, wanted)
    fresh = limits_of(run, ["runuser", "-l", module.params["user"], "-s", "/bin/bash", "-c"])
    findings = judge(
        wanted,
        fresh=fresh,
        session=limits_of(run, ["/bin/bash", "-c"]),
        uses_pam=sshd_uses_pam(run),
        may_raise=may_raise_limits(Path("/proc/self/status").read_text()),
        max_files=int(Path("/proc/sys/fs/nr_open").read_text()),
    )
    findings += judge_stack(fresh, module.params["nccl"]) + systemd_findings(run, wanted)
    module.exit_json(changed=False, findings=findings)


if __name__ == "__main__":
    main()
