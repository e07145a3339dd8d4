"""Frames are found whatever is printed around them, in whatever pieces they come; what is cut is said."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.common import bounded_json
from nodectl.errors import ParseError
from nodectl.payload.common.frames import SHELL, FrameError, Reader, encode, texts

NOISE = st.binary(max_size=40).map(lambda noise: noise.replace(b"nodectl-frame/", b""))
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40)
@given(st.lists(st.tuples(NOISE, JSON), max_size=5), NOISE, st.integers(1, 7))
def test_documents_are_found_in_any_noise_and_any_pieces(parts: list[Any], last: bytes, size: int) -> None:
    stream = b"".join(noise + encode(document) for noise, document in parts) + last
    reader, found = Reader(), list[bytes]()
    for start in range(0, len(stream), size):
        found += reader.feed(stream[start : start + size])
    reader.end()
    assert [json.loads(text) for text in found] == [document for _, document in parts]
    assert texts(stream) == found


@pytest.mark.parametrize(
    "noise", [b"", b"Welcome!\n", b"no newline", b"nodectl-fra", b"nodectl-frame/ no head\n", b"\xff"]
)
def test_noise_goes_where_it_is_wanted(noise: bytes) -> None:
    heard: list[bytes] = []
    reader = Reader(heard.append)
    (text,) = reader.feed(noise + encode({"a": 1}) + noise)
    reader.end()
    assert (json.loads(text), b"".join(heard).count(noise)) == ({"a": 1}, 2 if noise else 1)


@pytest.mark.parametrize("left", [1, 20, len(encode({"a": 1})) - 2])
def test_a_cut_frame_is_an_error_that_names_the_host(left: int) -> None:
    cut = encode({"a": 1})[:left]
    with pytest.raises(ParseError, match=r"^gpu07: its answer cannot be read"):
        bounded_json.document("gpu07", b"hello\n" + cut)


def test_what_another_writes_into_a_frame_is_an_error() -> None:
    whole = encode({"key": "value"})
    with pytest.raises(ParseError, match=r"^gpu07: "):
        bounded_json.documents("gpu07", whole[:25] + b"[1] Done  sleep 3\n" + whole[25:])


def test_a_frame_of_another_version_is_an_error() -> None:
    with pytest.raises(FrameError, match="version 2"):
        texts(encode({}).replace(b"/1 ", b"/2 "))


def test_more_than_one_answer_is_none() -> None:
    with pytest.raises(ParseError, match=r"^gpu07: .*2 frames"):
        bounded_json.document("gpu07", encode(1) + encode(2))


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_writes_them_too(shell: str) -> None:
    argv = [shell, "-c", SHELL + 'frame "$1"', "sh", json.dumps({"who": "Zoë", "n": [1]}, ensure_ascii=False)]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert bounded_json.document("gpu07", done.stdout) == {"who": "Zoë", "n": [1]}
