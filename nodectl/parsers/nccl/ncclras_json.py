"""The JSON of `ncclras` (`-f json`), also with lines before it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from nodectl.errors import ParseError
from nodectl.parsers.nccl.ncclras_answer import TOOL, NcclRas, RasCommunicator, RasJob, RasProcess, RasRank, status_of

_IN_PROGRESS = 7  # ncclInProgress
_LINE_BRACE = re.compile(r"^[ \t]{0,20}\{", re.MULTILINE)
_TABLE = re.compile(r"^Group .{0,200}Status", re.MULTILINE)
_CANDIDATES = 20


def document_of(text: str) -> Mapping[str, Any] | None:
    """None where the text is no JSON; ParseError where it begins as JSON and is cut."""
    failure: ParseError | None = None
    for brace in islice(_LINE_BRACE.finditer(text), _CANDIDATES):
        try:
            found, _ = json.JSONDecoder().raw_decode(text, brace.end() - 1)
        except (ValueError, RecursionError) as error:
            number = text.count("\n", 0, brace.end()) + 1
            line = text[brace.end() - 1 :].split("\n", 1)[0][:200]
            failure = failure or ParseError(f"{TOOL}: line {number}: {line!r}: no whole JSON: {str(error)[:200]}")
        else:
            if isinstance(found, dict) and isinstance(found.get("communicators"), list):
                return found
            failure = failure or ParseError(f"{TOOL}: JSON without a list of communicators")
    if failure is not None and _TABLE.search(text) is None:
        raise failure
    return None


def ras_of_json(document: Mapping[str, Any]) -> NcclRas:
    """ParseError where a value has another type than NCCL's."""
    communicators: list[RasCommunicator] = []
    missing: list[RasRank] = []
    dead: dict[RasProcess, None] = {}
    unresponsive: dict[RasProcess, None] = {}
    for each in _objects(document, "communicators"):
        name = _text(each, "hash")
        communicators.append(_communicator(each, name))
        for rank in _objects(each, "missing_ranks"):
            where = RasRank(_number(rank, "rank"), _text(rank, "host"), _optional(rank, "cuda_dev"), name)
            missing.append(where)
            process = RasProcess(where.host, _optional(rank, "pid"), where.device)
            status = _object(rank, "status")
            (dead if status.get("considered_dead") is True else unresponsive)[process] = None
    return NcclRas(
        nccl_version=_text(document, "nccl_version"),
        job=RasJob(None, None, None),
        communicators=tuple(communicators),
        dead=tuple(dead),
        unresponsive=tuple(unresponsive),
        missing_ranks=tuple(missing),
        outliers=(),
    )


def _communicator(each: Mapping[str, Any], name: str | None) -> RasCommunicator:
    ranks = list(_objects(each, "ranks"))
    missing = _optional(each, "missing_ranks_count")
    if missing is None and "missing_ranks" in each:
        missing = len(list(_objects(each, "missing_ranks")))
    errors = []
    if missing:
        errors.append("INCOMPLETE")
    states = [_object(rank, "status") for rank in ranks]
    if any(_is_error(state, key) for state in states for key in ("init_state", "async_error")):
        errors.append("ERROR")
    if len({json.dumps(rank.get("collective_counts"), sort_keys=True) for rank in ranks}) > 1:
        errors.append("MISMATCH")
    size = _optional(each, "size")
    return RasCommunicator(
        id=name,
        ranks=len(ranks) + (missing or 0) if size is None else size,
        missing=missing,
        status=status_of(errors),
        state=None,
        errors=None,
    )


def _is_error(state: Mapping[str, Any], key: str) -> bool:
    return _optional(state, key) not in (None, 0, _IN_PROGRESS)


def _objects(owner: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    found = owner.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ParseError(f"{TOOL}: {key!r} is {str(found)[:80]!r}, not a list of objects")
    yield from found


def _object(owner: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = owner.get(key, {})
    if not isinstance(found, dict):
        raise ParseError(f"{TOOL}: {key!r} is {str(found)[:80]!r}, not an object")
    return found


def _optional(owner: Mapping[str, Any], key: str) -> int | None:
    found = owner.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int):
        raise ParseError(f"{TOOL}: {key!r} is {str(found)[:80]!r}, not a whole number")
    return found


def _number(owner: Mapping[str, Any], key: str) -> int:
    found = _optional(owner, key)
    if found is None:
        raise ParseError(f"{TOOL}: {key!r} is missing in {str(owner)[:80]!r}")
    return found


def _text(owner: Mapping[str, Any], key: str) -> str | None:
    found = owner.get(key)
    if found is not None and not isinstance(found, str):
        raise ParseError(f"{TOOL}: {key!r} is {str(found)[:80]!r}, not a text")
    return found
