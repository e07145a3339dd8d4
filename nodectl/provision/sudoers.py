"""The drop-in that a login needs of sudo: exactly the commands that `health` runs as root, and a choice beyond."""

from __future__ import annotations

import re

from nodectl.errors import UsageError
from nodectl.facts.catalogue import root_argvs

# a login or, after a per cent sign, a group; what sudoers would take for syntax is left out
_NAME = re.compile(r"%?[A-Za-z_][A-Za-z0-9_.-]*\Z")
# a set of characters is a pattern to sudoers, too: of one character, never of a blank
_ARGUMENT = re.compile(r"(?:[A-Za-z0-9./-]|\[[0-9a-z]-[0-9a-z]\])+\Z")
# where distributions have them; sudo compares the file, so /bin/dmesg is the same one
_FOLDERS = {"lspci": ("/usr/bin", "/usr/sbin"), "smartctl": ("/usr/sbin",), "nvme": ("/usr/sbin",)}
_FOLDER = ("/usr/bin",)

_HEAD = """\
# What nodectl needs of sudo on a node, for {name}. Put it there as /etc/sudoers.d/nodectl, owner root, mode 0440, after
#   visudo -cf FILE

# Provisioning (nodectl provision, rollback): Ansible's become starts a Python as root that does what the playbook says.
# That is root with all rights, and no list of commands makes it less. Choose one of
#   {name} ALL=(root) PASSWD: ALL      run `nodectl provision -K`, which asks for the password
#   {name} ALL=(root) NOPASSWD: ALL    runs unattended
# or neither: who may only look needs no more than what stands below.
"""
_LOOK = """
# Looking (nodectl health, facts, topology, record): only what a login cannot read, with exactly these arguments.
# Nothing is changed by them.
# Of several lines that fit, sudo takes the last: keep this one at the end.
"""
_CHOICES = {"none": "", "password": "{name} ALL=(root) PASSWD: ALL\n", "nopasswd": "{name} ALL=(root) NOPASSWD: ALL\n"}


def sudoers(name: str, provisioning: str = "none") -> str:
    """Return a drop-in that visudo accepts; `provisioning` is none, password or nopasswd."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} is not the name of a login or %group", "give a name of letters, digits and ._-")
    # sudoers reads it as everybody, and a word of capitals as an alias that may stand for anybody
    if re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        raise UsageError(
            f"sudoers reads {name!r} as an alias (ALL means everybody), not as a login", "name the login or %group"
        )
    commands = ", ".join(line for argv in root_argvs() for line in _commands(argv))
    return "".join(
        [
            _HEAD.format(name=name),
            _CHOICES[provisioning].format(name=name),
            _LOOK,
            f"Cmnd_Alias NODECTL_LOOK = {commands}\n{name} ALL=(root) NOPASSWD: NODECTL_LOOK\n",
        ]
    )


def _commands(argv: tuple[str, ...]) -> list[str]:
    program, *arguments = argv
    if not all(_ARGUMENT.match(word) for word in argv):
        raise ValueError(argv)
    return [" ".join([f"{where}/{program}", *(arguments or ['""'])]) for where in _FOLDERS.get(program, _FOLDER)]
