"""The running kernel and its distribution."""

import shlex
from dataclasses import dataclass
from functools import lru_cache

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, entry, output
from nodectl.model.recording import Command, Recording

_UNAME = Command("uname", ("uname", "-srm"), hardware=True)
_OS_RELEASE = Command("os-release", ("cat", "/etc/os-release"), hardware=True)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The running kernel and the distribution above it."""

    name: str
    release: str
    architecture: str
    os_id: str | None
    os_version: str | None
    os_name: str | None


@lru_cache(maxsize=4)
def parse_os_release(text: str) -> dict[str, str]:
    """The variables of /etc/os-release, whose values are quoted as in a shell."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ParseError(f"os-release line {number}: {line!r}: {error}") from error
        if not equals:
            raise ParseError(f"os-release line {number}: {line!r}")
        values[name.strip()] = words[0] if words else ""
    return values


def _read(recording: Recording) -> Kernel:
    words = output(recording, "uname").split()
    if len(words) != 3:
        raise ParseError(f"uname line 1: {' '.join(words)!r}")
    try:
        release = parse_os_release(entry(recording, "os-release").stdout)
    except (AbsentError, UnknownError, ParseError):
        release = {}  # the kernel is known without its distribution
    name, version, architecture = words
    return Kernel(name, version, architecture, release.get("ID"), release.get("VERSION_ID"), release.get("PRETTY_NAME"))


def _words(kernel: Kernel) -> str:
    return f"{kernel.os_name or kernel.os_id or 'no os-release'}, {kernel.name} {kernel.release}"


FACT = Fact("kernel", (_UNAME, _OS_RELEASE), _read, _words, row=300)
