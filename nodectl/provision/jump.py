"""A jump host as a ProxyCommand, with the keys, known hosts and rules of the host behind it.

OpenSSH starts another ssh for a ProxyJump and passes none of its own `-o` and `-i` to it; `nodectl exec` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

from nodectl.errors import InventoryError

# options of ssh that are followed by a value
_VALUED = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
# of the host alone; all others count for its jump host too
_OF_THE_HOST = frozenset({
    "controlmaster", "controlpath", "controlpersist", "hostkeyalias", "hostname", "port", "proxycommand", "proxyjump",
    "requesttty", "user",
})  # fmt: skip
_DEEPEST = 8  # jump hosts in a row


def proxy_command(jump: str, arguments: Sequence[str], configured: Callable[[Sequence[str]], str]) -> str:
    """Return the ProxyCommand that stands for ProxyJump `jump` in ssh's `arguments`.

    `configured` returns the jump host that ssh_config has for the jump host itself, or "".
    """
    passed = [word for option, value, words in _options(arguments) if _is_passed(option, value) for word in words]
    return _command(jump, passed, configured, 1)


def _command(jump: str, options: Sequence[str], configured: Callable[[Sequence[str]], str], depth: int) -> str:
    if depth > _DEEPEST:
        raise InventoryError(f"ProxyJump {jump}: more than {_DEEPEST} jump hosts in a row", "correct ssh_config")
    before, _, last = jump.rpartition(",")
    target = last.strip() if "://" in last else f"ssh://{last.strip()}"
    words = ["ssh", *options]
    if before := before or configured([*options, target]):
        words += ["-o", f"ProxyCommand={_command(before, options, configured, depth + 1)}"]
    # ssh replaces % in a ProxyCommand
    return " ".join([shlex.join(words).replace("%", "%%"), "-W '[%h]:%p'", shlex.quote(target).replace("%", "%%")])


def _is_passed(option: str, value: str) -> bool:
    keyword = value.strip().replace(" ", "=", 1).partition("=")[0].lower()
    return option in ("-i", "-F") or (option == "-o" and keyword not in _OF_THE_HOST)


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each option, its value and the words that give both, up to the first word that is no option."""
    left = list(arguments)
    while left and left[0].startswith("-") and left[0] != "--":
        word = left.pop(0)
        if word[1:2] not in _VALUED and word[2:]:  # several flags in one word
            left[:0] = [word[:2], f"-{word[2:]}"]
        elif word[1:2] not in _VALUED:
            yield word, "", [word]
        elif word[2:] or not left:
            yield word[:2], word[2:], [word]
        else:
            value = left.pop(0)
            yield word, value, [word, value]
