"""Reads `dcgmi diag -j`, of DCGM 2 and 3 (GPU ids) and of DCGM 4 (entities)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodectl.parsers.nvidia.dcgmi_diag import TOOL, DcgmiDiag, DiagTest
from nodectl.parsers.nvidia.json_document import find_document
from nodectl.parsers.text import Line, unreadable

_ROOTS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_WORDS = {"pass": "Pass", "fail": "Fail", "warn": "Warn", "skip": "Skip", "not run": "Skip"}
_WORST = ("Fail", "Warn", "Pass", "Skip")
_MESSAGE_KEYS = ("error", "warning", "info", "message")


def read_json(lines: Sequence[Line]) -> DcgmiDiag | None:
    """The report, None where the text holds no such document; ParseError where dcgmi says why it failed."""
    document = find_document("\n".join(line.text for line in lines), lambda found: any(key in found for key in _ROOTS))
    if document is None:
        return None
    found = next(document[key] for key in _ROOTS if key in document)
    if not isinstance(found, dict):
        raise unreadable(TOOL, lines[0], "the diagnostic is no object")
    error = found.get("runtime_error")
    categories = found.get("test_categories")
    if not isinstance(categories, list):
        reason = f"it failed: {str(error)[:400]}" if error else "it names no test_categories"
        raise unreadable(TOOL, lines[0], reason)
    tests: list[DiagTest] = []
    for category in categories:
        part = _object(category, lines[0])
        for test in _list(part.get("tests"), lines[0]):
            tests.append(_test(str(part.get("category", "")) or None, _object(test, lines[0]), lines[0]))
    metadata = {
        key: str(value) for source in (found, document) for key, value in source.items() if isinstance(value, str)
    }
    return DcgmiDiag(tuple(tests), metadata)


def _test(category: str | None, test: dict[str, Any], line: Line) -> DiagTest:
    gpus: dict[str, str] = {}
    statuses: list[str] = []
    texts: list[str] = []
    for result in _list(test.get("results", []), line):
        values = _object(result, line)
        word = _word(values.get("status"))
        if word is not None:
            statuses.append(word)
            gpus.update(dict.fromkeys(_gpus(values), word))
        for key in ("warnings", "warning", "errors", "error", "info"):
            texts += _texts(values.get(key))
    summary = test.get("test_summary")
    if isinstance(summary, dict) and (word := _word(summary.get("status"))) is not None:
        statuses.append(word)
    worst = min(statuses, key=lambda each: _WORST.index(each) if each in _WORST else 0, default=None)
    return DiagTest(category, str(test.get("name", "")), worst, gpus, "; ".join(dict.fromkeys(texts)) or None)


def _word(status: Any) -> str | None:
    if status is None:
        return None
    text = str(status).strip()
    return next((word for start, word in _WORDS.items() if text.lower().startswith(start)), text or None)


def _gpus(result: dict[str, Any]) -> list[str]:
    if result.get("entity_group", "GPU") != "GPU":
        return []
    for key in ("gpu_ids", "gpu_id", "entity_id"):
        if key in result:
            return [each.strip() for each in str(result[key]).split(",") if each.strip()]
    return []


def _texts(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    if isinstance(value, dict):
        return [str(value[key]) for key in _MESSAGE_KEYS if value.get(key)]
    return [str(value)]


def _object(value: Any, line: Line) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise unreadable(TOOL, line, f"{str(value)[:80]!r} is no object")
    return value


def _list(value: Any, line: Line) -> list[Any]:
    if not isinstance(value, list):
        raise unreadable(TOOL, line, f"{str(value)[:80]!r} is no list")
    return value
