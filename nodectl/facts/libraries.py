"""NVIDIA's libraries of the system: what a program finds that brings none of its own."""

import re

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output
from nodectl.model.recording import Command, Recording
from nodectl.model.system import Libraries, Library

# as sed writes alternatives
_NAMES = r"\|".join(
    rf"lib{name}\.so" for name in ("nccl", "nccl-net", "cudnn", "cudart", "cuda", "nvidia-ml", "ibverbs")
)
# PATH, where its link leads to: the file's name carries the version
_LIST = f"""\
ldconfig -p | sed -n 's/^[[:space:]]*\\({_NAMES}\\).* (libc6,.*=> //p' | while read -r path; do
  printf '%s\\t%s\\n' "$path" "$(readlink -f "$path")"
done
"""
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


def _read(recording: Recording) -> Libraries:
    found = []
    for number, line in enumerate(output(recording, "loaded-libraries").splitlines(), start=1):
        path, tab, real = line.partition("\t")
        if not tab:
            raise ParseError(f"loaded-libraries: line {number}: {line[:200]!r}")
        version = _VERSION.search(real)
        found.append(Library(path.rpartition("/")[2], path, version[1] if version else None))
    return Libraries(tuple(found))


FACT = Fact("libraries", lambda venv: (Command("loaded-libraries", ("sh", "-c", _LIST), hardware=True),), _read)
