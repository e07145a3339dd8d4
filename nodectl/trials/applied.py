"""A proposal of `tune propose`, read back to be applied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nodectl.common.files import read_text
from nodectl.errors import UsageError
from nodectl.trials.propose import MARK, SCHEMA, evidence_path

_AGAIN = "write it again with `nodectl tune propose`"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A proposal's file: the pattern of the hosts it is for, those it names, and its evidence."""

    path: Path
    pattern: str
    hosts: tuple[str, ...]
    evidence: Mapping[str, Any]

    @property
    def lines(self) -> list[str]:
        """Return what the operator is shown before the proposal is applied."""
        head = [
            line.removeprefix("# ") for line in self.path.read_text(encoding="utf-8").splitlines() if line[:2] == "# "
        ]
        return [f"{self.path}: {self.evidence['profile']} against {self.evidence['baseline']}", *head[2:]]


def read_proposal(path: Path) -> Proposed:
    """Read a proposal's file; raise UsageError if nodectl did not write it, or its evidence is missing."""
    text = read_text(path, "give the file that `nodectl tune propose` wrote")
    if not text.startswith(MARK):
        raise UsageError(f"{path} is not a proposal of nodectl", "for an inventory of your own: nodectl provision -i …")
    try:
        inside = yaml.safe_load(text)["all"]
        if "hosts" in inside:
            hosts, pattern = tuple(map(str, inside["hosts"])), ",".join(map(str, inside["hosts"]))
        else:
            hosts, pattern = (), next(iter(map(str, inside.get("children", {"all": None}))))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: malformed proposal: {error!r}", _AGAIN) from error
    return Proposed(path, pattern, hosts, _evidence(path))


def _evidence(path: Path) -> Mapping[str, Any]:
    beside = evidence_path(path)
    try:
        evidence = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the evidence beside {path} cannot be read: {error}", f"put {beside.name} beside it, or propose it again"
        ) from error
    if not isinstance(evidence, dict) or evidence.get("schema") != SCHEMA or not evidence.get("trials"):
        raise UsageError(f"{beside} is no evidence ({SCHEMA})", _AGAIN)
    return evidence
