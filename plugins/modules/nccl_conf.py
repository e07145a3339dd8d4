#!/usr/bin/python
"""Ansible module: what NCCL itself would read from its files, and who overrides it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Mapping

    Finding = dict[str, str]

DOCUMENTATION = r"""
module: nccl_conf
short_description: Compare NCCL's file, read as NCCL reads it, with what should be
description:
  - Trims nothing and knows no quotes, as NCCL's own parser; the first writer of a name wins. Changes nothing.
  - A user's own file goes before the system's, so that one which names a wanted variable is a warning.
author: The nodectl authors
options:
  path: {description: The system's file., type: path, required: true}
  variables: {description: Name and value of each variable., type: dict, required: true}
  user: {description: Whose own file is looked at., type: str, required: true}
"""
EXAMPLES = r"""
- nccl_conf: {path: /etc/nccl.conf, variables: {NCCL_SOCKET_IFNAME: =eth0}, user: root}
"""
RETURN = r"""
findings: {description: What was looked at., type: list, elements: dict, returned: always}
"""

MAX_CHARS = 1023
CHECK, REMEDY = "nccl_env", "run `nodectl provision --tags nccl_env`"


def parse(text: str) -> dict[str, str]:
    """Name and value as NCCL takes them: cut at 1023 characters, untrimmed, `#` only in the first column."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name[:MAX_CHARS], value[:MAX_CHARS])
    return found


def judge(path: str, text: str | None, wanted: Mapping[str, str], users: Mapping[str, str]) -> list[Finding]:
    """Pure: a finding a variable that is wanted, stands there unasked, or is overridden; `users` is file and text."""
    if text is None:
        return [finding(CHECK, "failed", path, expected="NCCL's file", actual="not there", remedy=REMEDY)]
    there = parse(text)
    found = [_variable(path, name, value, there.get(name)) for name, value in sorted(wanted.items())]
    for name in sorted(set(there) - set(wanted)):
        expected = f"no such line: NCCL would read the name {name!r}"
        found.append(finding(CHECK, "failed", name, expected=expected, actual=there[name], remedy=REMEDY))
    for file, own in sorted(users.items()):
        for name, value in sorted(parse(own).items()):
            if wanted.get(name, value) != value:
                found.append(_overridden(file, name, wanted[name], value))
    return found or [finding(CHECK, "ok", path, expected="no variable", actual="no variable")]


def _variable(path: str, name: str, wanted: str, there: str | None) -> Finding:
    actual = f"not in {path}" if there is None else there
    return finding(CHECK, "ok" if there == wanted else "failed", name, expected=wanted, actual=actual, remedy=REMEDY)


def _overridden(file: str, name: str, wanted: str, value: str) -> Finding:
    actual = f"{value}, by {file}, which goes before the system's file"
    return finding(CHECK, "warning", name, expected=wanted, actual=actual, remedy=f"remove the line from {file}")


def read(path: Path) -> str | None:
    """The file's text; None where there is none."""
    try:
        return path.read_text(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None


def users_file(user: str) -> Path | None:
    """Where NCCL looks first for this user."""
    try:
        return Path(pwd.getpwnam(user).pw_dir, ".nccl.conf")
    except KeyError:
        return None


def main() -> None:
    """Look, compare, report."""
    spec = {
        "path": {"type": "path", "required": True},
        "variables": {"type": "dict", "required": True},
        "user": {"type": "str", "required": True},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    own = users_file(module.params["user"])
    text = read(own) if own and os.access(str(own), os.R_OK) else None
    wanted = {name: str(value) for name, value in module.params["variables"].items()}
    path = module.params["path"]
    findings = judge(path, read(Path(path)), wanted, {str(own): text} if text is not None else {})
    module.exit_json(changed=False, findings=findings)


if __name__ == "__main__":
    main()
