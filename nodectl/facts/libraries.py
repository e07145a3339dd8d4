"""NVIDIA's libraries of the system: what a program finds that brings none of its own."""

import re
from dataclasses import dataclass

from nodectl.facts.base import listed, matches, script, text_fact

# as sed writes alternatives
_NAMES = r"\|".join(
    rf"lib{name}\.so" for name in ("nccl", "nccl-net", "cudnn", "cudart", "cuda", "nvidia-ml", "ibverbs")
)
# PATH, where its link leads to: the file's name carries the version
_SHOW = f"""\
set -f
IFS='
'
set -- $(ldconfig -p | sed -n 's/^[[:space:]]*\\({_NAMES}\\).* (libc6,.*=> //p')
[ $# -gt 0 ] || exit 0
if reals=$(realpath "$@" 2>/dev/null); then # one process for all of them
  for real in $reals; do printf '%s\\t%s\\n' "$1" "$real"; shift; done
else
  for path; do printf '%s\\t%s\\n' "$path" "$(readlink -f "$path")"; done
fi
"""
_LINE = re.compile(r"(?P<path>(?:[^\t]*/)?(?P<name>[^\t/]*))\t(?P<real>.*)")
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the dynamic linker would load, with the version that its file's name carries."""

    name: str
    path: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Libraries:
    """NVIDIA's libraries of the system, as `ldconfig -p` lists them."""

    libraries: tuple[Library, ...]


def _parse(text: str) -> Libraries:
    libraries = []
    for match in matches(_LINE, text, "loaded-libraries"):
        version = _VERSION.search(match["real"])
        libraries.append(Library(match["name"], match["path"], version[1] if version else None))
    return Libraries(tuple(libraries))


def _words(value: Libraries) -> str:
    return listed({f"{library.name} {library.version or ''}".strip() for library in value.libraries})


FACT = text_fact("libraries", script("loaded-libraries", _SHOW, hardware=True), _parse, _words, row=510)
