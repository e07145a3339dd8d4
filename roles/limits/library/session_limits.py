#!/usr/bin/python
"""Ansible module: the limits that a fresh login, this SSH session and systemd's services really get."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    Run = Callable[[list[str]], tuple[int, str, str]]
    Limits = Mapping[str, str]

DOCUMENTATION = r"""
module: session_limits
short_description: Compare the live limits of logins and services with what should be
description:
  - Opens a fresh PAM session and reads its limits; asks systemd where it is process 1. Changes nothing.
  - What a host cannot hold, or what its SSH server does not apply, is reported and does not fail.
author: The nodectl authors
options:
  user: {description: Whose session., type: str, required: true}
  memlock: {description: Locked memory in KiB or unlimited., type: str, required: true}
  nofile: {description: Open files or unlimited., type: str, required: true}
"""
EXAMPLES = r"""
- session_limits: {user: root, memlock: unlimited, nofile: "1048576"}
"""
RETURN = r"""
report: {description: Lines on what does not apply on this host., type: list, returned: always}
"""

OPTIONS = {"memlock": "l", "nofile": "n"}
SYSTEMD = {"memlock": ("DefaultLimitMEMLOCK", 1024), "nofile": ("DefaultLimitNOFILE", 1)}
CAP_SYS_RESOURCE = 24


def number(text: str) -> float:
    """A limit as a number; unlimited is above all numbers."""
    return float("inf") if text in ("unlimited", "infinity") else float(text)


def limits_of(run: Run, command: list[str]) -> Limits:
    """{name: lower of soft and hard} in limits.conf's units, from a shell that `command` starts; {} if it cannot."""
    script = "; ".join(f"ulimit -S{flag}; ulimit -H{flag}" for flag in OPTIONS.values())
    status, out, _ = run([*command, script])
    words = out.split()[-2 * len(OPTIONS) :]
    if status != 0 or len(words) < 2 * len(OPTIONS):
        return {}
    return {name: min(words[2 * i : 2 * i + 2], key=number) for i, name in enumerate(OPTIONS)}


def may_raise_limits(status_text: str) -> bool:
    """The process of this /proc/PID/status may go above hard limits."""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", status_text, re.MULTILINE)
    return bool(capabilities and int(capabilities.group(1), 16) >> CAP_SYS_RESOURCE & 1)


def judge(
    wanted: Limits, fresh: Limits, session: Limits, uses_pam: bool | None, may_raise: bool, max_files: int
) -> tuple[list[str], list[str]]:
    """Pure: (failures, report) for logins; `uses_pam` None is an SSH server that could not be asked."""
    failures, report = [], []
    for name, value in wanted.items():
        if name == "nofile" and number(value) > max_files:
            report.append(f"nofile {value}: not settable on this host, its fs.nr_open is {max_files}")
            continue
        if name not in fresh:
            report.append(f"{name}: a fresh session could not be opened to look at it")
        elif number(fresh[name]) < number(value):
            text = f"a fresh login has {name} {fresh[name]}, the profile says {value}"
            if may_raise:
                failures.append(text)
            else:
                report.append(f"{text}: not settable on this host, root here lacks CAP_SYS_RESOURCE")
        if name in session and number(session[name]) < number(value) and uses_pam is False:
            report.append(f"{name} {value}: not applied to SSH sessions on this host: sshd has UsePAM no")
    return failures, report


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


def systemd_failures(run: Run, wanted: Limits) -> list[str]:
    """What systemd gives its services, where it is process 1."""
    if not Path("/run/systemd/system").is_dir():
        return []
    failures = []
    for name, (field, unit) in SYSTEMD.items():
        status, out, err = run(["systemctl", "show", "--value", "--property", field])
        if status != 0:
            failures.append(f"systemctl show {field}: {err.strip()}")
        elif number(out.strip()) < number(wanted[name]) * unit:
            failures.append(f"systemd gives services {field}={out.strip()}, the profile says {wanted[name]}")
    return failures


def main() -> None:
    """Look, compare, report."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(argument_spec={"user": text, "memlock": text, "nofile": text}, supports_check_mode=True)
    run: Run = module.run_command
    wanted: dict[str, str] = {name: module.params[name] for name in OPTIONS}
    failures, report = judge(
        wanted,
        fresh=limits_of(run, ["runuser", "-l", module.params["user"], "-s", "/bin/bash", "-c"]),
        session=limits_of(run, ["/bin/bash", "-c"]),
        uses_pam=sshd_uses_pam(run),
        may_raise=may_raise_limits(Path("/proc/self/status").read_text()),
        max_files=int(Path("/proc/sys/fs/nr_open").read_text()),
    )
    failures += systemd_failures(run, wanted)
    if failures:
        module.fail_json(msg="; ".join(failures), report=report)
    module.exit_json(changed=False, report=report)


if __name__ == "__main__":
    main()
