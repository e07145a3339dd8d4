"""Acceptances that are kept, each in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nodectl.common.documents import values_of
from nodectl.common.files import read_document, replace_file
from nodectl.common.paths import state_dir
from nodectl.errors import UsageError
from nodectl.model.acceptance import Acceptance

_SCHEMA = "nodectl.accept/1"
DOCUMENT = "acceptance.json"
_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}")
_REMEDY = "move its folder away"


def folder_of(name: str) -> Path:
    """Return the folder of an acceptance; it is made on first use and read by its owner only."""
    path = state_dir() / "accept" / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def document_of(acceptance: Acceptance) -> dict[str, Any]:
    """Plain data for JSON, without the schema."""
    return asdict(acceptance)


def save(acceptance: Acceptance, folder: Path) -> None:
    """Write the whole document, or leave the one before it, whatever happens in between."""
    text = json.dumps({"schema": _SCHEMA, **document_of(acceptance)}, indent=1, default=str)
    replace_file(folder / DOCUMENT, text + "\n", sync=True)


def read(path: Path) -> Acceptance:
    """Return an acceptance from its document; UsageError if it holds none."""
    document = read_document(path, _SCHEMA, _REMEDY)
    fields = {key: value for key, value in document.items() if key != "schema"}
    try:
        return values_of(Acceptance, [fields])[0]
    except ValueError as error:
        raise UsageError(f"{path}: malformed acceptance: {error}", _REMEDY) from error


def latest(fleet: str) -> Acceptance | None:
    """Return the fleet's latest acceptance that has ended; None if there is none."""
    return next((one for one in _of_fleet(fleet) if one.ended is not None), None)


def last_accepted(fleet: str, host: str) -> Acceptance:
    """Return the fleet's latest acceptance that accepted the host; UsageError if there is none."""
    for one in _of_fleet(fleet):
        if one.ended is not None and any(row.host == host and row.verdict.accepts for row in one.hosts):
            return one
    raise UsageError(f"{host} has no accepted figures to compare with", f"nodectl accept --level quick -l {host}")


def known_seconds(fleet: str, level: str, hosts: int) -> dict[str, float]:
    """Return, by step, what it took the last time at this level, if so many hosts took part in it."""
    for one in _of_fleet(fleet):
        if (one.level, len(one.hosts)) == (level, hosts) and one.ended is not None:
            return {step.name: step.took_s for step in one.steps if step.took_s and len(step.hosts) == hosts}
    return {}


def _of_fleet(fleet: str) -> Iterator[Acceptance]:
    paths = (state_dir() / "accept").glob(f"*/{DOCUMENT}")
    for path in sorted((path for path in paths if _ID.fullmatch(path.parent.name)), reverse=True):
        try:
            one = read(path)
        except UsageError:
            continue
        if one.fleet == fleet:
            yield one
