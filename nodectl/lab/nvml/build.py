"""Build the simulated libnvidia-ml.so.1: library.c, and a weak function for every other one that nvml.h declares."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nodectl.common.paths import cache_dir

LIBRARY = "libnvidia-ml.so.1"
_HERE = Path(__file__).parent
_DECLARED = re.compile(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(([^;]*?)\)\s*;")
_NUMBERS = re.compile(r"typedef (?:enum\s+\w+\s*\{[^}]*\}|unsigned int|unsigned long long)\s*(\w+);")
_NAME = re.compile(r"nvml(?:Device|System)(Get|Set)(\w+?)(?:_v\d+)?")
_PARAMETER = re.compile(r"(?:const )?(.+?)\s*(\**)\s*(\w+)")
_HEAD = '#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <nvml.h>\n#include "library.h"\n'


def functions(header: str) -> Iterator[str]:
    """Yield a C function for each declaration: it reads or writes numbers or a text of the state, or has no support."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", "", header, flags=re.DOTALL)
    numbers = {"int", "unsigned int", "unsigned long", "unsigned long long", *_NUMBERS.findall(bare)}
    for name, text in _DECLARED.findall(bare):
        parameters = [_PARAMETER.fullmatch(" ".join(part.split())) for part in text.split(",")]
        found = [match.groups() for match in parameters if match]
        body = _body(name, found, numbers) if len(found) == len(parameters) else ""
        head = f"__attribute__((weak)) nvmlReturn_t {name}({' '.join(text.split())})"
        yield f"{head} {{ return {body or 'NVML_ERROR_NOT_SUPPORTED'}; }}"


def _body(name: str, parameters: list[tuple[str, ...]], numbers: set[str]) -> str:
    match = _NAME.fullmatch(name)
    if match is None:
        return ""
    device, rest = "0", parameters
    if parameters[0][:2] == ("nvmlDevice_t", ""):
        device, rest = parameters[0][2], parameters[1:]
    given = [name for kind, stars, name in rest if not stars and kind in numbers]
    filled = [name for kind, stars, name in rest if stars == "*" and kind in numbers]
    texts = [name for kind, stars, name in rest if (kind, stars) == ("char", "*")]
    if len(given) + len(filled) + len(texts) < len(rest):
        return ""
    # the room of a text is its last argument; one function has a fixed one
    room = (given.pop() if rest[-1][2] in given else "64") if texts else ""
    key = f'{device}, "{match[2]}", {len(given)}, (long long[]){{{", ".join(given) or 0}}}'
    if match[1] == "Set":
        return f"lab_set({key})" if given and not filled else ""
    if texts:
        return f"lab_text({key}, {texts[0]}, {room})"
    places = ", ".join(f"{{{place}, sizeof *{place}}}" for place in filled)
    return f"lab_numbers({key}, {len(filled)}, (Out[]){{{places}}})"


def folder() -> Path:
    """Return the cache that `make nvidia-smi` fills: nvml.h, and VERSION/nvidia-smi of each version."""
    return cache_dir() / "nvidia-smi"


def programs() -> tuple[Path, ...]:
    """Return each nvidia-smi that is at hand, the newest last."""
    return tuple(sorted(folder().glob("*/nvidia-smi")))


def library() -> Path | None:
    """Return the library, built again if its source is newer; None without nvml.h or a C compiler."""
    header, made = folder() / "nvml.h", folder() / LIBRARY
    sources = (header, *_HERE.iterdir())
    if not header.is_file() or not shutil.which("cc"):
        return None
    if not made.is_file() or made.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        with tempfile.TemporaryDirectory(dir=folder()) as scratch:
            _compile(header, Path(scratch)).replace(made)
    return made


def _compile(header: Path, scratch: Path) -> Path:
    generated, made = scratch / "functions.c", scratch / LIBRARY
    generated.write_text(_HEAD + "\n".join(functions(header.read_text(encoding="utf-8"))) + "\n", encoding="utf-8")
    argv = ["cc", "-O2", "-fPIC", "-shared", "-w", f"-I{header.parent}", f"-I{_HERE}", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([*argv, "-o", str(made), str(_HERE / "library.c"), str(generated)], check=True)
    return made
