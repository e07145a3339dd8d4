"""Reads DCGM's `dcgmi diag`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.facts.parsers.json_values import find_document
from nodectl.facts.parsers.nvidia.words import no_output
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "dcgmi-diag"
_CATEGORY = re.compile(r"[|+]-+ +([A-Za-z][\w /-]{0,60}?) +-+\+-*[|+]?\s*")
_ROW = re.compile(r"\|([^|]{1,200})\|([^|]{0,4000})\|\s*")
_STATUS = re.compile(r"(Pass|Fail|Warn|Skip)\w*\b(?: *- *(.*))?", re.IGNORECASE)
_GPU_STATUS = re.compile(r"GPU ?([0-9]{1,6}): *(Pass|Fail|Warn|Skip)", re.IGNORECASE)
_GPUS = re.compile(r"GPUs?:? *([0-9]{1,6}(?: *, *[0-9]{1,6})*)")
_GPU_NAME = re.compile(r"GPU ?[0-9]{1,6}")
_MESSAGE = re.compile(r"(?:Error|Warning|Info|Note)s?\b", re.IGNORECASE)
_WORST = ("Fail", "Warn", "Pass", "Skip")
_FULL = 46


@dataclass(frozen=True, slots=True)
class DiagTest:
    """One test: `gpus` where the result is given by GPU, `text` for what the test says about it."""

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


@dataclass(slots=True)
class _Test:
    category: str | None
    name: str
    status: str | None = None
    gpus: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)

    def frozen(self) -> DiagTest:
        return DiagTest(self.category, self.name, self.status, self.gpus, joined(self.text))

    def take(self, cell: str) -> bool:
        """Take the results in a cell; return whether it begins with one."""
        text = cell.strip()
        if by_gpu := _GPU_STATUS.match(text):
            self.gpus[by_gpu[1]] = by_gpu[2].capitalize()
            return True
        parts = [_STATUS.match(part.strip()) for part in text.split(";") if part.strip()]
        if not parts or parts[0] is None:
            return False
        for part in filter(None, parts):
            word = part[1].capitalize()
            if self.status is None or _WORST.index(word) < _WORST.index(self.status):
                self.status = word
            if gpus := _GPUS.search(part[2] or ""):
                self.gpus.update(dict.fromkeys(re.split(r" *, *", gpus[1]), word))
        return True


def parse_dcgmi_diag(text: str) -> DcgmiDiag:
    """Read the output; raise ParseError for a cut row, or where dcgmi says why there is no report."""
    lines = lines_of(text, TOOL)
    report = _read_json(text, lines) if any(line.text.lstrip().startswith("{") for line in lines) else None
    return report or _read_table(list(untagged(lines)))


def _read_table(lines: Sequence[Line]) -> DcgmiDiag:
    tests: list[_Test] = []
    metadata: dict[str, str] = {}
    category, has_begun = None, False
    for line in lines:
        text = line.text.strip()
        match = _ROW.fullmatch(text)
        name, cell = (match[1].strip(), match[2]) if match else ("", "")
        if heading := _CATEGORY.fullmatch(text):
            category, has_begun = heading[1], True
        elif not text.startswith("|") or text.startswith(("|--", "|=")):
            continue
        elif match is None:
            if has_begun:
                raise unreadable(TOOL, line, "the row is cut: it has no two cells")
        elif name == "Diagnostic" and cell.strip() == "Result":
            has_begun = True
        elif category == "Metadata":
            metadata |= {name: cell.strip()} if name else {}
        elif not name or _MESSAGE.match(name) or _GPU_NAME.fullmatch(name):
            _more(tests, category, name.rstrip(":"), cell)
        else:
            tests.append(_Test(category, name))
            if not tests[-1].take(cell):
                raise unreadable(TOOL, line, f"{cell.strip()!r} does not begin with Pass, Fail, Warn or Skip")
    if not has_begun and not tests:
        raise no_output(TOOL, lines, "table '| Diagnostic | Result |'")
    return DcgmiDiag(tuple(test.frozen() for test in tests), metadata)


def _more(tests: list[_Test], category: str | None, kind: str, cell: str) -> None:
    """Read a line below a test: results of more GPUs, or what the test says."""
    if kind and (not tests or tests[-1].category != category):
        # an error that belongs to no test of its category is the category's own failure
        tests.append(_Test(category, kind, "Fail" if kind.lower() == "error" else None))
    if not tests or (not kind and not tests[-1].text and tests[-1].take(cell)):
        return
    tests[-1].text.append(cell)
    if kind.lower() == tests[-1].name.lower() == "error" and (gpu := _GPUS.search(cell)):
        tests[-1].gpus.update(dict.fromkeys(re.split(r" *, *", gpu[1]), "Fail"))


def joined(cells: Sequence[str]) -> str | None:
    """Text that a table broke over several cells; a cell filled to its edge goes on without a space."""
    whole, full = "", False
    for cell in cells:
        text = cell.removeprefix(" ")
        space = " " if whole and (text.startswith(" ") or not full) else ""
        whole += space + text.strip()
        full = len(text.rstrip()) >= _FULL
    return whole or None


_ROOTS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_WORDS = {"pass": "Pass", "fail": "Fail", "warn": "Warn", "skip": "Skip", "not run": "Skip"}
_MESSAGE_KEYS = ("error", "warning", "info", "message")


def _read_json(text: str, lines: Sequence[Line]) -> DcgmiDiag | None:
    document = find_document(
        text, TOOL, lambda document: isinstance(document, dict) and any(key in document for key in _ROOTS)
    )
    if document is None:
        return None
    diagnostic = next(document[key] for key in _ROOTS if key in document)
    if not isinstance(diagnostic, dict):
        raise unreadable(TOOL, lines[0], "the diagnostic is no object")
    error = diagnostic.get("runtime_error")
    categories = diagnostic.get("test_categories")
    if not isinstance(categories, list):
        reason = f"it failed: {str(error)[:400]}" if error else "it names no test_categories"
        raise unreadable(TOOL, lines[0], reason)
    tests = [
        _test(str(category.get("category", "")) or None, test, lines[0])
        for category in _objects(categories, lines[0])
        for test in _objects(category.get("tests"), lines[0])
    ]
    metadata = {
        key: str(value) for source in (diagnostic, document) for key, value in source.items() if isinstance(value, str)
    }
    return DcgmiDiag(tuple(tests), metadata)


def _test(category: str | None, test: dict[str, Any], line: Line) -> DiagTest:
    gpus: dict[str, str] = {}
    statuses: list[str] = []
    texts: list[str] = []
    for result in _objects(test.get("results", []), line):
        if (word := _word(result.get("status"))) is not None:
            statuses.append(word)
            is_of_gpu = result.get("entity_group", "GPU") == "GPU"
            listed = next((str(result[key]) for key in ("gpu_ids", "gpu_id", "entity_id") if key in result), "")
            gpus.update(dict.fromkeys(filter(None, map(str.strip, listed.split(","))) if is_of_gpu else (), word))
        for key in ("warnings", "warning", "errors", "error", "info"):
            texts += _texts(result.get(key))
    summary = test.get("test_summary")
    if isinstance(summary, dict) and (word := _word(summary.get("status"))) is not None:
        statuses.append(word)
    worst = min(statuses, key=lambda status: _WORST.index(status) if status in _WORST else 0, default=None)
    return DiagTest(category, str(test.get("name", "")), worst, gpus, "; ".join(dict.fromkeys(texts)) or None)


def _word(status: Any) -> str | None:
    text = "" if status is None else str(status).strip()
    return next((word for start, word in _WORDS.items() if text.lower().startswith(start)), text or None)


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        return [str(value[key]) for key in _MESSAGE_KEYS if value.get(key)]
    return [str(value)] if value not in (None, "") else []


def _objects(value: Any, line: Line) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, dict):
            raise unreadable(TOOL, line, f"{str(item)[:80]!r} is no object")
    return items
