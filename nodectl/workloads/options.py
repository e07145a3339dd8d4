"""The command line of a training program: the options of every workload (settings.py), and those of one alone."""

from __future__ import annotations

import argparse
import importlib
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from dataclasses import Field

    from nodectl.workloads import dynamic_batch, parallel, pytorch
    from nodectl.workloads.settings import COMPUTED, COURSE, DYNAMIC, LOG, MEETING, SHARES, Settings
    from nodectl.workloads.workload import Workload
else:  # on a node these files lie in one folder, without the package
    import dynamic_batch
    import parallel
    import pytorch
    from settings import COMPUTED, COURSE, DYNAMIC, LOG, MEETING, SHARES, Settings

# of options whose choices the modules have that know what they do
_CHOICES = {"parallel": parallel.NAMES, "recompute": parallel.RECOMPUTED}


def parse(workload: Workload, arguments: Sequence[str] | None = None) -> Settings:
    """Return settings from the command line; argparse ends the program (2) on a wrong one."""
    parser = _parser(workload)
    # a preset gives the other options their defaults
    parser.set_defaults(**workload.presets.get(parser.parse_args(arguments).preset, {}))
    given = vars(parser.parse_args(arguments))
    common = {field.name for field in fields(Settings)}
    own = argparse.Namespace(**{name: given[name] for name in sorted(given.keys() - common)})
    settings = Settings(**{name: value for name, value in given.items() if name in common}, own=own)
    try:
        workload.check(settings)
        dynamic_batch.check(settings)
    except ValueError as error:
        parser.error(str(error))
    return settings


def start(workload: Workload) -> None:
    """Train by the command line's options; those are read first, since --help needs no torch."""
    parse(workload)
    pytorch.need()
    importlib.import_module("program").run(workload)


def refuse(workload: Workload, text: str) -> NoReturn:
    """End the program as over an option that cannot be read."""
    _parser(workload).error(text)


class _Parser(argparse.ArgumentParser):
    """Its errors are one line: every rank says them, and the usage of all options would hide them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (--help tells all options)\n")


def _parser(workload: Workload) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=workload.name,
        description=workload.summary,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    if workload.presets:
        presets = sorted(workload.presets)
        parser.add_argument("--preset", choices=presets, help="an article's options; those given beside it go before")
    model = parser.add_argument_group("the workload's own")
    workload.add_options(model)  # type: ignore[arg-type]  # a group takes options as a parser does
    groups = {name: parser.add_argument_group(name) for name in (COURSE, DYNAMIC, COMPUTED, MEETING, SHARES, LOG)}
    for field in fields(Settings):
        if field.metadata:
            _add(groups[field.metadata["group"]], field)
    folder = os.environ.get("NODECTL_CHECKPOINT_DIR")
    parser.set_defaults(**({"checkpoint_dir": Path(folder)} if folder else {}))
    parser.set_defaults(**{"preset": None, **workload.defaults})
    return parser


def _add(group: argparse._ArgumentGroup, option: Field[Any]) -> None:
    """Add the option that a field declares; one that is on by default is switched off by --no-x."""
    flag, about, kind = option.name.replace("_", "-"), option.metadata["about"], option.metadata["kind"]
    given: dict[str, Any] = {"dest": option.name, "default": option.default}
    if isinstance(option.default, bool):
        if about:
            group.add_argument(f"--{flag}", action="store_true", help=about, **given)
        if option.default:
            group.add_argument(f"--no-{flag}", action="store_false", help=option.metadata["unless"], **given)
        return
    choices = _CHOICES.get(option.name, kind if isinstance(kind, tuple) else None)
    given["choices" if choices else "type"] = choices or kind
    group.add_argument(f"--{flag}", help=about, **given)
