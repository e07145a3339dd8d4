"""Proposals that were applied: one read back, and the note by which `tune rollback` finds its run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from nodectl.common.documents import values_of
from nodectl.common.files import read_document, read_text, replace_file
from nodectl.errors import NodectlError, UsageError
from nodectl.trials.propose import MARK, SCHEMA, evidence_path
from nodectl.trials.store import folder

_KEPT = 50
_AGAIN = "write it again with `nodectl tune propose`"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A proposal's file: the hosts that it is for, and its evidence."""

    path: Path
    hosts: tuple[str, ...]
    evidence: Mapping[str, Any]

    @property
    def lines(self) -> list[str]:
        """Return what the operator is shown before the proposal is applied."""
        head = [
            line.removeprefix("# ") for line in self.path.read_text(encoding="utf-8").splitlines() if line[:2] == "# "
        ]
        return [f"{self.path}: {self.evidence['profile']} against {self.evidence['baseline']}", *head[2:]]


@dataclass(frozen=True, slots=True)
class Applied:
    """One run of `tune apply`: its id, the proposal, and the hosts that it was applied to."""

    run: str
    proposal: str
    inventory: tuple[str, ...]
    hosts: tuple[str, ...]
    time: str


def read_proposal(path: Path) -> Proposed:
    """Read a proposal's file; raise UsageError if nodectl did not write it, or its evidence is missing."""
    text = read_text(path, "give the file that `nodectl tune propose` wrote")
    if not text.startswith(MARK):
        raise UsageError(f"{path} is not a proposal of nodectl", "for an inventory of your own: nodectl provision -i …")
    try:
        hosts = tuple(map(str, yaml.safe_load(text)["all"]["hosts"]))
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: malformed proposal: {error!r}", _AGAIN) from error
    return Proposed(path, hosts, read_document(evidence_path(path), SCHEMA, _AGAIN))


def remember(applied: Applied) -> None:
    """Keep a run of `tune apply` for `tune rollback`, beside the latest ones before it."""
    rows = [asdict(run) for run in (*_all(), applied)]
    replace_file(_file(), json.dumps(rows[-_KEPT:], indent=1) + "\n", mode=0o644, sync=True)


def last_applied(inventory: Sequence[str]) -> Applied:
    """Return the last run of `tune apply` on this inventory."""
    for applied in reversed(_all()):
        if applied.inventory == tuple(inventory):
            return applied
    raise NodectlError("nothing was applied to this inventory by `nodectl tune apply`", "see `nodectl rollback --list`")


def _all() -> tuple[Applied, ...]:
    try:
        return values_of(Applied, json.loads(_file().read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise NodectlError(
            f"{_file()} cannot be read: {error}", "move it away; see `nodectl rollback --list`"
        ) from error


def _file() -> Path:
    return folder() / "applied.json"
