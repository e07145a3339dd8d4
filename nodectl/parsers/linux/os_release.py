"""Reads /etc/os-release, whose values are quoted as in a shell."""

import shlex

from nodectl.errors import ParseError


def parse_os_release(text: str) -> dict[str, str]:
    """Its variables."""
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
