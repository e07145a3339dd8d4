"""A parser reads any text within its time, or refuses it with a short reason."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, parser_of, tools

_TOOLS = Path(__file__).resolve().parents[2] / "fixtures" / "tools"
# a text of 64 KiB is read in some 20 ms; what needs this long grows faster than its text
_SLOWEST_S = 2.0
_ODD = st.sampled_from(["N/A", "-1", "1e999", "9" * 5000, "\x1b[31m", "\r", "\x00", "{", "|", " " * 2000, "½", "<a>"])


@pytest.mark.parametrize("tool", tools())
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_changed_output_is_read_or_refused(tool: str, data: st.DataObject) -> None:
    texts = [path.read_text() for path in sorted((_TOOLS / tool).glob("*.txt"))]
    text = data.draw(st.sampled_from(texts))[:65_536]
    for _ in range(data.draw(st.integers(1, 3))):
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        text = (
            text[:begin] + data.draw(st.one_of(_ODD, st.text(max_size=20), st.just(text[begin:end] * 3))) + text[end:]
        )
    began = time.process_time()
    try:
        json.dumps(as_document(parser_of(tool)(text)), allow_nan=False)
    except ParseError as error:
        assert 0 < len(error.message.strip()) <= 2000
    assert time.process_time() - began < _SLOWEST_S
