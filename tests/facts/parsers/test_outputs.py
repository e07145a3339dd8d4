"""Each output in tests/fixtures/tools/TOOL/ gives the document beside it, whatever stands around it.

NAME.json is what `nodectl parse TOOL NAME.txt` prints; an output without one must be refused. forms.json has short
texts in groups, each with the document that it gives, without what is null in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, tools
from tests.facts.parsers.tool_outputs import PARSERS, TOOLS, tool_output

OUTPUTS = sorted(TOOLS.glob("*/*.txt"))
FORMS = [
    (path.parent.name, group, forms)
    for path in sorted(TOOLS.glob("*/forms.json"))
    for group, forms in json.loads(path.read_text()).items()
]


def id_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_null(item) for name, item in value.items() if item is not None}
    return [without_null(item) for item in value] if isinstance(value, list) else value


# what a terminal, a parallel shell, a job runner, a log or a paste makes of an output
AROUND: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "end of lines": lambda text: text.replace("\n", "\r\n"),
    "mark": lambda text: f"\ufeff{text}",
    "shell": lambda text: "$ a command\n" + text.removesuffix("\n") + "\nuser@host:~$ \n",
    "log": lambda text: f"2026-01-01 00:00:00 INFO a, b\n{text}",
}
TABS: dict[str, Callable[[str], str]] = {
    "three blanks": lambda text: text.replace("\t", "   "),
    "columns": lambda text: text.expandtabs(8),
}
TABS_IN_VALUES = "perftest-err.link-cut-midrun"


@pytest.mark.parametrize("path", OUTPUTS, ids=id_of)
def test_an_output_gives_the_document_beside_it(path: Path) -> None:
    parse, text = PARSERS[path.parent.name], tool_output(path.parent.name, path.name)
    if not path.with_suffix(".json").exists():
        with pytest.raises(ParseError):
            parse(text)
        return
    expected = json.loads(path.with_suffix(".json").read_text())
    del expected["schema"]
    assert as_document(parse(text)) == expected
    wrappings = AROUND if id_of(path).startswith(TABS_IN_VALUES) else AROUND | TABS
    for name, around in wrappings.items():
        assert as_document(parse(around(text))) == expected, name


@pytest.mark.parametrize(("tool", "group", "forms"), FORMS, ids=[f"{tool}-{group}" for tool, group, _ in FORMS])
def test_forms_of_an_output(tool: str, group: str, forms: list[dict[str, Any]]) -> None:
    for form in forms:
        text = form["text"] if isinstance(form["text"], str) else "\n".join(form["text"])
        assert without_null(as_document(PARSERS[tool](text))) == form["found"], text


@pytest.mark.parametrize("tool", tools())
def test_each_tool_has_an_output_and_refuses_what_is_none(tool: str) -> None:
    assert any(path.parent.name == tool and path.with_suffix(".json").exists() for path in OUTPUTS)
    for text, told in (
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("hello\n", "hello"),
        ("bash: x: command not found\n", "command not found"),
    ):
        with pytest.raises(ParseError, match=told):
            PARSERS[tool](text)
