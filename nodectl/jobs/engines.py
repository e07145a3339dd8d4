"""What may start a node's ranks beside torchrun, and which words of its own launcher nodectl says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nodectl.common.resources import table
from nodectl.common.spelling import meant
from nodectl.errors import UsageError

TORCHRUN, DEEPSPEED, ACCELERATE, COMMAND = "torchrun", "deepspeed", "accelerate", "command"
NAMES = (TORCHRUN, DEEPSPEED, ACCELERATE, COMMAND)


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher's options in front of the script, with underscores: without a value, with one, and those of nodectl.

    `closed`: options that stand nowhere here are refused; else they are taken for one of a newer version.
    """

    flags: frozenset[str]
    valued: frozenset[str]
    ours: Mapping[str, str]
    closed: bool


@cache
def _launcher(engine: str) -> Launcher | None:
    tables = table(Path(__file__).with_suffix(".yml"))
    if engine not in (DEEPSPEED, ACCELERATE):
        return None
    row, says = tables[engine], tables["says"]
    ours = {option: says[why] for why, options in row["ours"].items() for option in options}
    return Launcher(frozenset(row["flags"]), frozenset(row["valued"]), ours, row["closed"])


def split(engine: str, argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return what is started by name, and what follows it; UsageError where ARGV cannot be that engine's."""
    if not argv:
        raise UsageError(
            f"--engine {engine} needs a command to start",
            f"say it behind `--`: nodectl launch --engine {engine} -- ARGV",
        )
    launcher = _launcher(engine)
    at = 0 if launcher is None else _script_at(engine, launcher, argv)
    if not argv[at]:
        raise UsageError(f"--engine {engine}: an empty word names no program")
    return argv[at], tuple(argv[at + 1 :])


def _script_at(engine: str, launcher: Launcher, argv: Sequence[str]) -> int:
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        name, equals, _ = argv[at].partition("=")
        option = name if not name.startswith("--") else "--" + name[2:].replace("-", "_")
        if option in launcher.ours:
            raise UsageError(f"--engine {engine}: {name} is not for ARGV", launcher.ours[option])
        options = launcher.flags | launcher.valued
        if launcher.closed and option not in options:
            raise UsageError(
                f"--engine {engine}: its launcher has no option {name}",
                f"{meant(option, options)}the script's own options stand behind the script",
            )
        at += 1 if equals or option in launcher.flags else 2
    if at >= len(argv):
        raise UsageError(
            f"--engine {engine}: it needs a script, and there is none in {' '.join(argv)}",
            "its options come first, then the script",
        )
    return at


def of_module(engine: str, module: str, args: Sequence[str]) -> tuple[str, ...]:
    """ARGV that starts a module; UsageError if the engine knows none."""
    if engine == COMMAND:
        raise UsageError("-m is for Python modules", f"nodectl launch --engine command -- python -m {module}")
    return "--module", module, *args
