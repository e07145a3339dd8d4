"""`nodectl parse`: files as operating systems save them."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodectl.cli import root

IBSTAT = Path(__file__).parent.parent / "fixtures" / "tools" / "ibstat" / "two.txt"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_file_of_powershell_is_read_whole(tmp_path: Path, encoding: str) -> None:
    text = IBSTAT.read_text()
    plain, saved = tmp_path / "plain", tmp_path / "saved"
    plain.write_text(text)
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    saved.write_bytes(mark + text.replace("\n", "\r\n").encode(encoding))
    documents = [CliRunner().invoke(root.cli, ["parse", "ibstat", str(path)]) for path in (plain, saved)]
    assert documents[0].exit_code == 0
    assert documents[1].output == documents[0].output


def test_a_text_that_ends_within_a_line_is_told(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.write_text(IBSTAT.read_text())
    cut.write_text(IBSTAT.read_text().rstrip("\n"))
    results = [CliRunner().invoke(root.cli, ["parse", "ibstat", str(path)]) for path in (whole, cut)]
    assert results[0].stdout == results[1].stdout
    assert ["ends within a line" in result.stderr for result in results] == [False, True]


@pytest.mark.parametrize(
    ("data", "said"), [(b"\0\x01" * 999, "no text: it holds zero bytes"), (b"a\n" * (9 << 20), "larger than 16 MiB")]
)
def test_what_no_tool_prints_is_refused_at_once(nodectl: Any, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(data)
    done = nodectl("parse", "dmesg", str(tmp_path / "file"), check=False)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
