"""Reads the JSON of DCGM's `dcgmi diag -j`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.facts.parsers.json_values import find_document
from nodectl.facts.parsers.nvidia.words import no_output
from nodectl.facts.parsers.text import Line, lines_of, unreadable

TOOL = "dcgmi-diag"
_WORST = ("Fail", "Warn", "Pass", "Skip")


@dataclass(frozen=True, slots=True)
class DiagTest:
    """One test: `gpus` has the result of each GPU, `text` the test's messages."""

    category: str | None
    name: str
    status: str | None
    gpus: Mapping[str, str]
    text: str | None


@dataclass(frozen=True, slots=True)
class DcgmiDiag:
    """The tests in the order of the report; `metadata` are versions and the like."""

    tests: tuple[DiagTest, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


_ROOTS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_WORDS = {"pass": "Pass", "fail": "Fail", "warn": "Warn", "skip": "Skip", "not run": "Skip"}
_MESSAGE_KEYS = ("error", "warning", "info", "message")


def _is_diagnostic(document: Any) -> bool:
    return isinstance(document, dict) and any(key in document for key in _ROOTS)


def parse_dcgmi_diag(text: str) -> DcgmiDiag:
    """Read the output; raise ParseError if the text has no such document, or dcgmi reports why it failed."""
    lines = lines_of(text, TOOL)
    document = find_document(text, TOOL, _is_diagnostic)
    if document is None:
        raise no_output(TOOL, lines, "document of `dcgmi diag -j`")
    diagnostic = next(document[key] for key in _ROOTS if key in document)
    if not isinstance(diagnostic, dict):
        raise unreadable(TOOL, lines[0], "the diagnostic is no object")
    error = diagnostic.get("runtime_error")
    categories = diagnostic.get("test_categories")
    if not isinstance(categories, list):
        reason = f"it failed: {str(error)[:400]}" if error else "it names no test_categories"
        raise unreadable(TOOL, lines[0], reason)
    tests: list[DiagTest] = []
    for category in categories:
        part = _object(category, lines[0])
        for test in _list(part.get("tests"), lines[0]):
            tests.append(_test(str(part.get("category", "")) or None, _object(test, lines[0]), lines[0]))
    metadata = {
        key: str(value) for source in (diagnostic, document) for key, value in source.items() if isinstance(value, str)
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
    worst = min(statuses, key=lambda status: _WORST.index(status) if status in _WORST else 0, default=None)
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
            return [index.strip() for index in str(result[key]).split(",") if index.strip()]
    return []


def _texts(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
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
