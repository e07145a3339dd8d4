"""The running kernel and its distribution."""

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, output
from nodectl.model.facts import Kernel
from nodectl.model.recording import Command, Recording
from nodectl.parsers.os_release import parse_os_release


def _read(recording: Recording) -> Kernel:
    words = output(recording, "uname").split()
    if len(words) != 3:
        raise ParseError(f"uname line 1: {' '.join(words)!r}")
    release = parse_os_release(entry(recording, "os-release").stdout)
    name, version, architecture = words
    return Kernel(name, version, architecture, release.get("ID"), release.get("VERSION_ID"), release.get("PRETTY_NAME"))


FACT = Fact(
    "kernel",
    lambda venv: (Command("uname", ("uname", "-srm")), Command("os-release", ("cat", "/etc/os-release"))),
    _read,
)
