"""Build the simulated libnvidia-ml.so.1: library.c, and a weak function for every other one that nvml.h declares."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


def build(header: Path, target: Path) -> None:
    """Compile the library against nvml.h, if it is older than its source."""
    if target.is_file() and target.stat().st_mtime > max(path.stat().st_mtime for path in (header, *_HERE.iterdir())):
        return
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        generated, made = Path(scratch, "functions.c"), Path(scratch, target.name)
        generated.write_text(_HEAD + "\n".join(functions(header.read_text(encoding="utf-8"))) + "\n", encoding="utf-8")
        argv = ["cc", "-O2", "-fPIC", "-shared", "-w", f"-I{header.parent}", f"-I{_HERE}", f"-Wl,-soname,{target.name}"]
        subprocess.run([*argv, "-o", str(made), str(_HERE / "library.c"), str(generated)], check=True)
        made.replace(target)
