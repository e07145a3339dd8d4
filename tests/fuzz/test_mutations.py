"""A few seconds of what `make fuzz` does for an hour: every parser, broken outputs, no error but ParseError."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import parser_of, tools
from tests.fuzz.families import check, seeds
from tests.fuzz.mutate import mutated

# everything that a file decoded with errors="replace" can hold
_ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
_MUTATIONS = 60
# what would show a pattern that goes over a line again and again, or a parser that goes down as deep as the text
_HOSTILE = (
    (" " * 4000 + "\n") * 300,
    "hca_id: a\nCA 'a'\n\tPort 1:\n" + ("port:" + " " * 4000 + "x\n") * 25,
    f" #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]\n{'1 ' * 2000}\n" + '{"jobs": ' + "9" * 9000,
    "[" * 200_000,
    "{\n" * 12_000,
    '{"jobs": [' + '{"jobname": "a"},\n' * 5_000,
    ('[1] "S-1"[1] # "' + '" ' * 1900 + "\n") * 50,
    ("SW 1 1 0x1 4x HDR - CA 1 1 0x2 ( '" + "' - '" * 600 + "\n") * 50,
)


def test_the_seeds_are_true_outputs() -> None:
    for tool in tools():
        assert seeds(tool)
        for text in seeds(tool):
            parser_of(tool)(text)


@pytest.mark.parametrize("tool", tools())
def test_broken_outputs_are_read_or_refused(tool: str) -> None:
    rng = random.Random(f"{tool} 1")
    for _ in range(_MUTATIONS):
        text = mutated(rng, seeds(tool))
        try:
            check(tool, text)
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{text[:3000]!r}")


@pytest.mark.parametrize("tool", tools())
def test_outputs_of_other_tools_are_read_or_refused(tool: str) -> None:
    for other in tools():
        check(tool, seeds(other)[0])


@pytest.mark.parametrize("tool", tools())
@settings(max_examples=10, deadline=None, database=None)
@given(text=_ANY_TEXT)
def test_any_text_is_read_or_refused(tool: str, text: str) -> None:
    check(tool, text)


def test_nothing_is_refused_as_empty() -> None:
    for tool in tools():
        for text in ("", " \n\t\n", "\x1b[0m\r\n", "\x00"):
            with pytest.raises(ParseError, match=r"(?i)empty|nothing"):
                parser_of(tool)(text)


@pytest.mark.parametrize("tool", tools())
def test_one_very_long_line_takes_no_time(tool: str) -> None:
    for unit in ("a", "9", " ", "[", "\r", "=", "x:", "\x1b["):
        check(tool, seeds(tool)[0] + unit * (100_000 // len(unit)))
    for text in _HOSTILE:
        check(tool, text)
