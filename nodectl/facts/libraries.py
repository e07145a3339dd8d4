"""NVIDIA's libraries of the system: what a program finds that brings none of its own."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, listed, output
from nodectl.model.recording import Command, Recording

# as sed writes alternatives
_NAMES = r"\|".join(
    rf"lib{name}\.so" for name in ("nccl", "nccl-net", "cudnn", "cudart", "cuda", "nvidia-ml", "ibverbs")
)
# PATH, where its link leads to: the file's name carries the version
_SHOW = f"""\
ldconfig -p | sed -n 's/^[[:space:]]*\\({_NAMES}\\).* (libc6,.*=> //p' | while read -r path; do
  printf '%s\\t%s\\n' "$path" "$(readlink -f "$path")"
done
"""
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


def _read(recording: Recording) -> Libraries:
    libraries = []
    for number, line in enumerate(output(recording, "loaded-libraries").splitlines(), start=1):
        path, tab, real = line.partition("\t")
        if not tab:
            raise ParseError(f"loaded-libraries: line {number}: {line[:200]!r}")
        version = _VERSION.search(real)
        libraries.append(Library(path.rpartition("/")[2], path, version[1] if version else None))
    return Libraries(tuple(libraries))


def _words(value: Libraries) -> str:
    return listed({f"{library.name} {library.version or ''}".strip() for library in value.libraries})


FACT = Fact("libraries", (Command("loaded-libraries", ("sh", "-c", _SHOW), hardware=True),), _read, _words, row=510)
