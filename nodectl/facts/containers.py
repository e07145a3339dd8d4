"""NVIDIA's container toolkit: what brings the GPUs into containers."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import script, text_fact

_SHOW = """\
command -v nvidia-ctk >/dev/null 2>&1 && exec nvidia-ctk --version
command -v nvidia-container-cli >/dev/null 2>&1 || exit 3
exec nvidia-container-cli --version
"""
_VERSION = re.compile(r"(?:version |cli-version: )v?(\d+(?:\.\d+){1,3})")


@dataclass(frozen=True, slots=True)
class ContainerToolkit:
    """Its version, in numbers and dots."""

    version: str


def _parse(text: str) -> ContainerToolkit:
    match = _VERSION.search(text)
    if match is None:
        raise ParseError(f"container-toolkit: {text[:120]!r} names no version")
    return ContainerToolkit(match[1])


def _words(toolkit: ContainerToolkit) -> str:
    return toolkit.version


FACT = text_fact(
    "containers",
    script("container-toolkit", _SHOW, hardware=True),
    _parse,
    _words,
    absent="NVIDIA's container toolkit is not installed",
    row=525,
)
