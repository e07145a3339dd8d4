"""Cut, garbled and hostile text of every network and storage tool: read or refused, never another exception."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.errors import ParseError
from nodectl.parsers.catalogue import as_document, parser_of
from tests.parsers import (
    test_fio,
    test_ibnetdiscover,
    test_ibstat,
    test_ibstatus,
    test_ibv_devinfo,
    test_perfquery,
    test_show_gids,
)

FIXTURES = Path(__file__).parent.parent / "fixtures"
GOOD = {
    "fio": [test_fio.report(test_fio.JOB)],
    "ibnetdiscover": [test_ibnetdiscover.TEXT],
    "ibstat": [test_ibstat.TEXT],
    "ibstatus": [test_ibstatus.TEXT],
    "ibv-devinfo": [
        test_ibv_devinfo.HEAD + test_ibv_devinfo.PORT,
        (FIXTURES / "ibverbs/ibv_devinfo-v.txt").read_text(),
    ],
    "iperf3": [(FIXTURES / "iperf3/forward.json").read_text()],
    "perfquery": [test_perfquery.EXTENDED + test_perfquery.SHORT],
    "perftest": [path.read_text() for path in sorted((FIXTURES / "perftest").glob("*client*"))],
    "rdma-link": [(FIXTURES / "ibverbs/rdma-link.txt").read_text()],
    "show-gids": [test_show_gids.TEXT],
}
CASES = [(tool, text) for tool, texts in GOOD.items() for text in texts]


def read_or_refuse(tool: str, text: str) -> None:
    try:
        document = as_document(parser_of(tool)(text))
    except ParseError as error:
        assert len(str(error)) < 1000
    else:
        json.dumps(document, allow_nan=False)


@given(st.sampled_from(CASES), st.data())
@settings(max_examples=300, deadline=None)
def test_cut_anywhere(case: tuple[str, str], data: st.DataObject) -> None:
    tool, text = case
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    read_or_refuse(tool, text[start:end])


@given(st.sampled_from(CASES), st.data())
@settings(max_examples=300, deadline=None)
def test_garbled_anywhere(case: tuple[str, str], data: st.DataObject) -> None:
    tool, text = case
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 20))
        text = text[:place] + data.draw(st.text(max_size=20)) + text[place + gone :]
    read_or_refuse(tool, text)


@given(st.sampled_from(sorted(GOOD)), st.text())
def test_any_text(tool: str, text: str) -> None:
    read_or_refuse(tool, text)


# what would show a pattern that goes over a line again and again, or a parser that goes down as deep as the text
HOSTILE = {
    "long line": "x" * 5_000_000,
    "blanks": (" " * 4000 + "\n") * 300,
    "blanks after a label": "hca_id: a\nCA 'a'\n\tPort 1:\n" + ("port:" + " " * 4000 + "x\n") * 100,
    "digits": " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]\n"
    + "1 " * 2000
    + "\n"
    + '{"jobs": '
    + "9" * 9000,
    "brackets": "[" * 200_000,
    "braces": "{\n" * 50_000,
    "cut JSON": '{"jobs": [' + '{"jobname": "a"},\n' * 20_000,
    "quotes": ('[1] "S-1"[1] # "' + '" ' * 1900 + "\n") * 50,
    "names": ("SW 1 1 0x1 4x HDR - CA 1 1 0x2 ( '" + "' - '" * 600 + "\n") * 50,
    "surrogates": "\udcff\ud800 #bytes\n",
    "escapes": "\x1b]0;title" * 1000 + "\x07\x1b[2J",
}


@pytest.mark.parametrize("tool", sorted(GOOD))
@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile(tool: str, name: str) -> None:
    read_or_refuse(tool, HOSTILE[name])
