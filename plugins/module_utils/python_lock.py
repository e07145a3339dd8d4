# SPDX-License-Identifier: Apache-2.0
"""Lock files of environments (name==version with digests of files), and the uv commands that make and use them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.python_env import canonical

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_PIN = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?==[A-Za-z0-9][\w.+!-]*"
_LINE = re.compile(rf"({_PIN})(?: --hash=sha256:[0-9a-f]{{64}})+", re.ASCII)
SETTINGS = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}


class LockError(Exception):
    """A text is no lock, or uv failed."""


def read(text: str) -> dict[str, str]:
    """Return {canonical name: line}; raise LockError for any other line, such as an option or an address."""
    locked: dict[str, str] = {}
    joined = text.replace("\\\n", " ")
    for line in (" ".join(row.split()) for row in joined.splitlines() if row.strip() and row[0] != "#"):
        match = _LINE.fullmatch(line)
        if match is None:
            raise LockError(f"'{line[:120]}' is no name==version with sha256 digests")
        locked[canonical(match.group(1).partition("==")[0])] = line
    if not locked:
        raise LockError("it names no package")
    return locked


def failed(doing: str, out: str, err: str) -> LockError:
    """Return the error with uv's last lines."""
    return LockError(f"uv could not {doing}:\n" + "\n".join((out + err).strip().splitlines()[-12:]))


def compile_argv(folder: Path, wanted: Mapping[str, Any]) -> list[str]:
    """Return the command that prints a lock for a host's machine and Python."""
    options, asked = _request(folder, wanted)
    options += ["--python-version", str(wanted["python_version"])]
    options += ["--python-platform", f"{wanted['machine']}-unknown-linux-gnu"]
    options += ["--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    return [wanted["controller_uv"], "pip", "compile", *options, asked]


def install_argvs(folder: Path, python: Path, wanted: Mapping[str, Any]) -> list[list[str]]:
    """Return the commands that install a lock's files, or the requirements if there is no lock."""
    install = [wanted["uv"], "pip", "install", "--compile-bytecode", "--python", str(python)]
    if not wanted["locked"]:
        options, asked = _request(folder, wanted)
        return [[*install, *options, "--requirement", asked]]
    commands = []
    for number, (lines, options) in enumerate(_groups(read("\n".join(wanted["locked"])), wanted)):
        listed = folder / f"nodectl-lock-{number}.txt"
        listed.write_text("".join(f"{line}\n" for line in lines))
        commands.append([*install, "--no-deps", "--require-hashes", *options, "--requirement", str(listed)])
    return commands


def _split(wanted: Mapping[str, Any]) -> list[str]:
    named = wanted.get("index_packages") or () if wanted["index"] and not wanted["wheelhouse"] else ()
    return [canonical(name) for name in named]


def _search(wanted: Mapping[str, Any]) -> list[str]:
    if wanted["wheelhouse"]:
        return ["--no-index", "--find-links", wanted["wheelhouse"]]
    return ["--index", wanted["index"], "--index-strategy", "first-index"] if wanted["index"] else []


def _groups(locked: Mapping[str, str], wanted: Mapping[str, Any]) -> list[tuple[list[str], list[str]]]:
    split = _split(wanted)
    if not split:
        return [(list(locked.values()), _search(wanted))]
    first = [line for name, line in locked.items() if name in split]
    others = [line for name, line in locked.items() if name not in split]
    groups: list[tuple[list[str], list[str]]] = [(first, ["--default-index", wanted["index"]]), (others, [])]
    return [group for group in groups if group[0]]


def _request(folder: Path, wanted: Mapping[str, Any]) -> tuple[list[str], str]:
    requirements, constraints = list(wanted["requirements"]), folder / "constraints.txt"
    constraints.write_text("".join(f"{pin}\n" for pin in wanted["constraints"]))
    options, split = ["--constraint", str(constraints)], _split(wanted)
    if split:
        asked, text = folder / "pyproject.toml", _project(requirements, wanted["index"], split)
    else:
        asked, text = folder / "requirements.in", "".join(f"{item}\n" for item in requirements)
        options += _search(wanted)
    asked.write_text(text)
    return options, str(asked)


def _project(requirements: Iterable[str], index: str, index_packages: Iterable[str]) -> str:
    wanted = list(requirements)
    named = {canonical(re.split(r"[\s<>=!~;\[]", item)[0]) for item in wanted}
    lines = ["[project]", 'name = "nodectl-environment"', 'version = "0"', f"dependencies = {json.dumps(wanted)}"]
    lines += ["[tool.uv.sources]", *(f'{name} = {{ index = "stack" }}' for name in index_packages if name in named)]
    lines += ["[[tool.uv.index]]", 'name = "stack"', f"url = {json.dumps(index)}", "explicit = true"]
    return "\n".join(lines) + "\n"
