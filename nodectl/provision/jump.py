"""ssh for Ansible where a host is reached through a jump host: with the same keys, known hosts and rules as the host.

OpenSSH starts another ssh for a ProxyJump and hands it none of its own `-o` and `-i`; `nodectl exec` does. This file
stands in ssh's place: it says the jump as a ProxyCommand that has them, and becomes ssh. Standard library only.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# options of ssh that are followed by a value
_VALUED = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
# of the host alone; all else, what is for safety above all, counts for its jump host too
_OF_THE_HOST = frozenset({
    "controlmaster", "controlpath", "controlpersist", "hostkeyalias", "hostname", "port", "proxycommand", "proxyjump",
    "requesttty", "user",
})  # fmt: skip


def install(folder: Path) -> Path:
    """Put a program below `folder` that is called as ssh is; its path."""
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", __file__])} "$@"\n')
    program.chmod(0o700)
    return program


def rewritten(arguments: Sequence[str], configured: Callable[[Sequence[str]], str]) -> list[str]:
    """Return ssh's arguments with their ProxyJump as a ProxyCommand; as they are where there is none.

    `configured` says which one ssh_config has for them.
    """
    jump, proxied, handed, kept = "", False, list[str](), list[str]()
    for option, value, given in _options(arguments):
        key, _, text = value.strip().replace(" ", "=", 1).partition("=") if option == "-o" else ("", "", value)
        name = {"-J": "proxyjump", "-i": "identityfile"}.get(option, key.lower())
        if name == "proxyjump" and not proxied and text.lower() != "none":
            jump = jump or text
            continue
        # as in ssh, the first one stands
        proxied = proxied or (name in ("proxyjump", "proxycommand") and not jump)
        kept += given
        handed += given if option in ("-i", "-F") or (option == "-o" and name not in _OF_THE_HOST) else []
    jump = jump or ("" if proxied else configured(arguments))
    return ["-o", f"ProxyCommand={_command(jump, handed)}", *kept] if jump else list(arguments)


def of_config(arguments: Sequence[str]) -> str:
    """Return the jump host that ssh_config has for ssh's arguments; empty if it has none, or ssh cannot tell."""
    done = subprocess.run(
        ["ssh", "-G", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    named = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("proxyjump ")]
    return next((name for name in named if name != "none"), "")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(`-o`, its value, the words that it was given as) of each; what is no option comes as it is."""
    left = list(arguments)
    while left and left[0].startswith("-") and left[0] != "--":
        word = left.pop(0)
        if word[1:2] not in _VALUED and word[2:]:  # flags that stand together
            left[:0] = [word[:2], f"-{word[2:]}"]
        elif word[1:2] not in _VALUED:
            yield word, "", [word]
        elif word[2:] or not left:
            yield word[:2], word[2:], [word]
        else:
            value = left.pop(0)
            yield word, value, [word, value]
    if left:
        yield "", "", left


def _command(jump: str, handed: Sequence[str]) -> str:
    before, _, last = jump.rpartition(",")
    through = [*handed, *(["-J", before] if before else [])]
    target = last.strip() if "://" in last else f"ssh://{last.strip()}"
    argv = [sys.executable, "-IS", __file__, *through]
    # ssh reads % in a ProxyCommand
    return " ".join([shlex.join(argv).replace("%", "%%"), "-W '[%h]:%p'", shlex.quote(target).replace("%", "%%")])


if __name__ == "__main__":
    os.execvp("ssh", ["ssh", *rewritten(sys.argv[1:], of_config)])  # noqa: S606 - no shell, and the operator's own ssh
