"""docs/trust.md: each line of its tables names the test that holds it, and that test is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent.parent
_ROWS = [
    line
    for line in (_ROOT / "docs" / "trust.md").read_text().splitlines()
    if line.startswith("|") and not re.match(r"\| (who|---)|\|---", line)
]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


@cache
def _tests(path: str) -> set[str]:
    names = set()
    for node in ast.parse((_ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return names


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_line_names_a_test_that_is_there(row: str) -> None:
    named = _NAMED.findall(row.split("|")[-2])
    assert named, row
    for path, test in named:
        assert test in _tests(path), f"{path} has no {test}"
