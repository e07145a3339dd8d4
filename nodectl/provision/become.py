"""Why a login could not become root: what sudo, su, Ansible and mitogen say of it, as a reason and a way out."""

from __future__ import annotations

import re

from nodectl.common.access import VAULT_REMEDY

_GIVE = "-K asks for it, a vault or ANSIBLE_BECOME_PASSWORD_FILE holds it"
_RIGHT = "`nodectl sudoers --user {login} --provision nopasswd`"
_SEE = "docs/sudoers.md"
# the first that fits: what is said, why, what to do; {login} is the one that is named there
_REFUSALS = tuple(
    (re.compile(said), why, remedy)
    for said, why, remedy in (
        (
            r"(?P<login>\S+) is not in the sudoers file",
            "sudo lets the login {login} do nothing",
            f"root puts there what {_RIGHT} prints",
        ),
        (
            r"user (?P<login>\S+) is not allowed to execute",
            "sudo lets the login {login} do some things, and not everything",
            f"root puts there what {_RIGHT} prints",
        ),
        (
            r"you must have a tty to run sudo",
            "sudo wants a terminal (requiretty)",
            "root writes `Defaults:{login} !requiretty` into a file of /etc/sudoers.d",
        ),
        (
            r"(?P<tool>sudo|su|doas): (?:command )?not found|No such file or directory: '(?P<program>sudo|su|doas)'",
            "no {tool} there",
            "install it, or log in as root (ansible_user)",
        ),
        (
            r"account validation failure|[Aa]ccount (?:has )?expired|Changing password for|password (?:has )?expired",
            "the login's account or its password has expired there",
            "log in by hand and change it, or ask root for `chage -l {login}`",
        ),
        (
            r"(?P<tool>sudo|su|doas)(?: password|: a password) is required|Missing (?P<program>sudo|su|doas) password",
            "{tool} wants a password, and was given none",
            f"{_GIVE}; without one: {_RIGHT}",
        ),
        (
            r"(?P<tool>sudo|su|doas) password is incorrect|Incorrect (?P<program>sudo|su|doas) password",
            "{tool} does not take the password that was given",
            f"it is the login's own on that host, for su root's; {_GIVE}",
        ),
        (
            r"Timeout \(\d+s\) waiting for privilege escalation prompt",
            "the login did not become root in time: {tool} asks for something that nobody types",
            "log in and try `sudo -k; sudo id`",
        ),
    )
)
# with an own question to type the password at, Ansible takes what else sudo says for a part of it
_SILENCE = re.compile(r"No start of json char found\Z")
_SILENT = "nothing came back from the Python that was to run as root: sudo may let the login run some commands only"
# no password was given, or another one than it was encrypted with
_SHUT = re.compile(r"no vault secrets (?:were )?found")


def explained(text: str) -> str:
    """`text`, or where it says that a login could not become root, why in one line, with what to do."""
    if _SHUT.search(text):
        return f"{text.rstrip('. ')}; {VAULT_REMEDY}"
    for said, why, remedy in _REFUSALS:
        if found := said.search(text):
            names = found.groupdict()
            words = {
                "login": names.get("login") or "LOGIN",
                "tool": names.get("tool") or names.get("program") or "sudo",
            }
            return f"{why}; {remedy} ({_SEE})".format(**words)
    if _SILENCE.search(text):
        return f"{text}; {_SILENT}; `sudo -l` shows which ({_SEE})"
    return text
