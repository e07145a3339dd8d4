"""A host's index that was not made by us: taken for what it says, or refused with the place; never half believed."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.recordings.folder import read_host


def host(folder: Path, *rows: dict[str, Any], **files: str) -> Path:
    (folder / "index.json").write_text(json.dumps(rows))
    for key, text in files.items():
        (folder / f"{key}.out").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"exit_status": True}, "exit_status"),
        ({"argv": "dmesg"}, "argv"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"time": float("nan")}, "time"),
    ],
)
def test_a_wrong_type_is_refused(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(ParseError, match=rf"index\.json: {said} of dmesg"):
        read_host(host(tmp_path, {"key": "dmesg", **row}, dmesg="x"), "a", "r")


def test_what_the_index_has_and_the_folder_has_not_is_not_an_empty_output(tmp_path: Path) -> None:
    rows = [
        {"key": "dmesg", "exit_status": 0},
        {"key": "uname", "exit_status": 0},
        {"key": "ibstat", "exit_status": 127},
    ]
    folder = host(tmp_path, *rows, uname="")
    (folder / "dmesg.out").symlink_to("/dev/null")
    found = read_host(folder, "a", "r").entries
    assert "dmesg" not in found and found["uname"].stdout == "" and found["ibstat"].exit_status == 127


def test_without_an_exit_status_it_ended_well_and_with_none_it_was_cut(tmp_path: Path) -> None:
    folder = host(tmp_path, {"key": "a"}, {"key": "b", "exit_status": None}, a="1", b="2")
    found = read_host(folder, "a", "r").entries
    assert (found["a"].exit_status, found["a"].cut, found["b"].cut) == (0, False, True)


@pytest.mark.parametrize("text", ['{"offset_s": NaN, "error_s": 1}', '{"offset_s": 1, "error_s": Infinity}', "[]", "{"])
def test_a_clock_that_is_no_number_is_not_told(tmp_path: Path, text: str) -> None:
    found = read_host(host(tmp_path, clock=text), "a", "r")
    assert (found.clock_offset_s, found.clock_error_s) == (None, None)
