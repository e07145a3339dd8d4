# SPDX-License-Identifier: Apache-2.0
"""An environment's lock: packages as name==version with digests of their files; how uv makes one and obeys it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.python_env import canonical

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Iterable, Mapping

    Run = Callable[[list[str], dict[str, str]], tuple[int, str, str]]

_PIN = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9._+!-]*"
_LINE = re.compile(rf"({_PIN})((?: --hash=sha256:[0-9a-f]{{64}})+)", re.ASCII)
# far above any environment of a stack, far below what would fill a disk
_MOST = 1000
# what one requirement brings, where a host says so and nobody can look it up; torch with CUDA has some 30
_MOST_EACH = 60
_SETTINGS = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}


class LockError(Exception):
    """A text that is no lock, a lock that does not hold what is wanted, or what uv says against it."""


def read(lines: Iterable[str]) -> dict[str, str]:
    """Return {canonical name: line}; LockError for a line of any other form, an option or an address among them."""
    locked: dict[str, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise LockError(f"'{line[:120]}' is no name==version with sha256 digests")
        locked[canonical(match.group(1).partition("==")[0])] = line
    if not 0 < len(locked) <= _MOST:
        raise LockError(f"it names {len(locked)} packages; 1 to {_MOST} are allowed")
    return locked


def pins(locked: Mapping[str, str]) -> list[str]:
    """Return the versions of a lock, without digests."""
    return [line.partition(" ")[0] for line in locked.values()]


def judge(lines: Iterable[str], requirements: Iterable[str], constraints: Iterable[str] = ()) -> dict[str, str]:
    """Read a lock that has each requirement and no more than they bring; LockError otherwise.

    It also has to keep to the versions that constraints name.
    """
    locked, wanted = read(lines), list(requirements)
    if len(locked) > _MOST_EACH * len(wanted):
        raise LockError(
            f"it names {len(locked)} packages; {_MOST_EACH * len(wanted)} are allowed for {len(wanted)} wanted"
        )
    held = [pin for pin in constraints if re.fullmatch(_PIN, pin) and canonical(pin.partition("==")[0]) in locked]
    for requirement in [*wanted, *held]:
        name, exact, version = requirement.partition("==")
        line = locked.get(canonical(re.split(r"[\s<>=!~;\[]", name)[0]))
        has = line.partition(" ")[0].partition("==")[2] if line else "none"
        if line is None or (exact and _plain(version) not in (_plain(has), _plain(has.partition("+")[0]))):
            raise LockError(f"{requirement} is wanted, and it has {has}")
    return locked


def _plain(version: str) -> str:
    """Return a version without the zeros at its end, which mean nothing."""
    return re.sub(r"(\.0)+$", "", version)


def _project(requirements: Iterable[str], index: str, index_packages: Iterable[str]) -> str:
    """Return a pyproject.toml: `index_packages` come from the index alone, all else from uv's default one."""
    wanted = list(requirements)
    named = {canonical(re.split(r"[\s<>=!~;\[]", item)[0]) for item in wanted}
    lines = ["[project]", 'name = "nodectl-environment"', 'version = "0"', f"dependencies = {json.dumps(wanted)}"]
    lines += ["[tool.uv.sources]", *(f'{name} = {{ index = "stack" }}' for name in index_packages if name in named)]
    lines += ["[[tool.uv.index]]", 'name = "stack"', f"url = {json.dumps(index)}", "explicit = true"]
    return "\n".join(lines) + "\n"


class Source:
    """The source of packages: a wheelhouse, else an index, which some packages alone may come from."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.house = str(wanted.get("wheelhouse") or "")
        self.index = str(wanted.get("index") or "")
        self.split = [canonical(name) for name in wanted.get("index_packages") or ()] if self.index else []

    def options(self) -> list[str]:
        """Return uv's options for one search; a name that the index has comes from nowhere else."""
        if self.house:
            return ["--no-index", "--find-links", self.house]
        return ["--index", self.index, "--index-strategy", "first-index"] if self.index and not self.split else []

    def groups(self, locked: Mapping[str, str]) -> list[tuple[list[str], list[str]]]:
        """Return (lines, uv's options) of each installation: one index for each."""
        if self.house or not self.split:
            return [(list(locked.values()), self.options())]
        first = [line for name, line in locked.items() if name in self.split]
        others = [line for name, line in locked.items() if name not in self.split]
        groups = [(first, ["--default-index", self.index]), (others, [])]
        return [group for group in groups if group[0]]


def resolve(run: Run, uv: str, folder: Path, wanted: Mapping[str, Any], target: list[str]) -> list[str]:
    """Return the lines of a new lock, as uv resolves them; LockError with uv's last lines.

    `wanted` has requirements, constraints, index, index_packages and wheelhouse; `target` has further options of uv:
    interpreter or platform, and --generate-hashes for a lock rather than its versions alone.
    """
    source, constraints = Source(wanted), folder / "constraints.txt"
    constraints.write_text("".join(f"{pin}\n" for pin in wanted.get("constraints") or ()))
    requirements = list(wanted["requirements"])
    if source.split and not source.house:
        asked, text = folder / "pyproject.toml", _project(requirements, source.index, source.split)
    else:
        asked, text = folder / "requirements.in", "".join(f"{item}\n" for item in requirements)
    asked.write_text(text)
    command = [uv, "pip", "compile", "--no-header", "--no-annotate", "--quiet", *target]
    command += ["--constraint", str(constraints), *source.options(), str(asked)]
    out = _asked(run, command, folder, f"resolve {' '.join(requirements)}")
    return [" ".join(line.split()) for line in out.replace("\\\n", " ").splitlines() if line.strip()]


def needed(resolved: Iterable[str], locked: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a lock that a host's resolution (name==version) needs; LockError for what it lacks."""
    part = {}
    for pin in resolved:
        name = canonical(pin.partition("==")[0])
        if locked.get(name, "").partition(" ")[0] != pin:
            raise LockError(f"{pin} is needed here, and the lock has {locked.get(name, 'none').partition(' ')[0]}")
        part[name] = locked[name]
    return part


def install(run: Run, uv: str, python: Path, folder: Path, source: Source, locked: Mapping[str, str]) -> None:
    """Install exactly these files into an environment: each has one of the lock's digests, or LockError."""
    for number, (lines, options) in enumerate(source.groups(locked)):
        listed = folder / f"nodectl-lock-{number}.txt"
        listed.write_text("".join(f"{line}\n" for line in lines))
        command = [uv, "pip", "install", "--no-deps", "--require-hashes", "--compile-bytecode", "--python", str(python)]
        _asked(run, [*command, *options, "--requirement", str(listed)], folder, f"install {len(lines)} packages")


def fill(run: Run, python: Path, folder: Path, wanted: Mapping[str, Any]) -> None:
    """Install what the requirements need into the environment of this interpreter; LockError if that cannot be.

    `wanted` is that of `resolve`, with uv, and with locked: a lock's lines, or none to resolve on this host alone.
    What a lock names and no requirement needs is not installed.
    """
    locked = read(wanted["locked"]) if wanted["locked"] else {}
    asked = {**wanted, "constraints": pins(locked) or wanted["constraints"]}
    target = ["--python", str(python), *([] if locked else ["--generate-hashes"])]
    resolved = resolve(run, wanted["uv"], folder, asked, target)
    chosen = needed(resolved, locked) if locked else judge(resolved, wanted["requirements"])
    install(run, wanted["uv"], python, folder, Source(wanted), chosen)


def _asked(run: Run, command: list[str], cache: Path, doing: str) -> str:
    status, out, err = run(command, {**_SETTINGS, "UV_CACHE_DIR": str(cache / "uv-cache")})
    if status != 0:
        raise LockError(f"uv could not {doing}:\n" + "\n".join((out + err).strip().splitlines()[-12:]))
    return out


def interpreter(python: str, version: str) -> list[str]:
    """Return uv's option for an interpreter; one that is still to come is known by its version."""
    return ["--python", python] if os.access(python, os.X_OK) else ["--python-version", version]
