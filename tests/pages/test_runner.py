"""The runner of pages: what it takes for the same, and that whatever is not as shown fails with page and line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.pages.command_lines import calls, refused
from tests.pages.page import PageError, read_page
from tests.pages.run import follow
from tests.pages.shown import as_it_was, compared


def _page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def _console(*lines: str) -> str:
    return "\n".join(["# A page", "", "```console", *lines, "```", ""])


def _follow(folder: Path, text: str) -> list[str]:
    return [result.output for result in follow(read_page(_page(folder, text)), folder / "run")]


def _fails(folder: Path, text: str) -> str:
    with pytest.raises(PageError) as error:
        _follow(folder, text)
    return str(error.value)


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        ("node02 ok", "node03 ok"),
        ("node[01-02] ok", "node[01-03] ok"),
        ("cu128", "cu126"),
        ("5 ok", "ok"),
        ("ok", "ok 5"),
        ("a … c", "a lot of b"),
        ("5 GB", "5 MB"),
        ("a.b", "axb"),
    ],
)
def test_another_line(shown: str, real: str) -> None:
    assert as_it_was(shown, real) is None


def test_lines_come_in_their_order_and_others_may_stand_between() -> None:
    real = ["head", "node01 3 ms", "node02 4 ms", "tail"]
    assert compared(["head", "…", "node02 1 ms"], real) == (["head", "…", "node02 4 ms"], None)
    assert compared(["node02 1 ms", "node01 1 ms"], real) == (["node02 4 ms"], "node01 1 ms")
    assert compared(["tail", "tail"], real) == (["tail"], "tail")


def test_a_wrong_output_fails(tmp_path: Path) -> None:
    said = _fails(tmp_path, _console("$ echo one; echo two", "one", "three"))
    assert "page.md:4: `echo one; echo two` line 6 does not come" in said
    assert "  shown:\n    one\n    three\n  real:\n    one\n    two" in said


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("$ false",), "page.md:4: `false` ended with 1"),
        (("$ (exit 3)", "$ echo $?", "1"), "`echo $?` line 6 does not come"),
        (("$ exit 0", "$ true"), "`exit 0` has ended the shell"),
    ],
)
def test_a_command_that_ends_otherwise_fails(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    assert said in _fails(tmp_path, _console(*lines))


def test_what_a_command_leaves_behind_ends_with_the_page(tmp_path: Path) -> None:
    (left,) = (int(text) for text in _follow(tmp_path, _console("$ setsid sleep 300 & echo $!")))
    deadline = time.monotonic() + 10
    while Path(f"/proc/{left}").exists() and "(sleep) Z" not in Path(f"/proc/{left}/stat").read_text():
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


def test_a_command_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pages.run._SHORT_S", 0.5)
    assert "`echo on; sleep 60` did not end in" in _fails(tmp_path, _console("$ echo on; sleep 60"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\ntrue\n```\n", "a block of kind 'bash'"),
        ("```\ntrue\n```\n", "a block of kind ''"),
        ("```text\n$ true\n```\n", "2: a command in a block of kind 'text' is not run"),
        ("```console\ntrue\n```\n", "a console block begins with a command"),
        ("```console\n$ true\n", "the block has no end"),
        ('```yaml title="/etc/a"\n```\n', "no path below"),
        ('```yaml title="../a"\n```\n', "no path below"),
        ("```console\n$ false; echo $?\n```\n", "a command of its own"),
        ("```console\n$ false\n$ echo $?\n```\n", "stands the status"),
        ("```console\n$ export I=$(nodectl lab up)\n$ true\n```\n", "2: a page that has a lab ends with"),
    ],
)
def test_a_page_that_is_not_understood_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PageError, match=r"page\.md:\d") as error:
        read_page(_page(tmp_path, text))
    assert said in str(error.value)


def test_the_commands_of_a_line_are_found_and_read_by_click() -> None:
    line = 'export A=$(nodectl lab up -n 3); B="$(nodectl jobs list)" nodectl -l a health | grep nodectl > x'
    line += " && ! nodectl facts 2>&1"
    assert list(calls(line)) == [["lab", "up", "-n", "3"], ["jobs", "list"], ["-l", "a", "health"], ["facts"]]
    assert list(calls("nodectl exec -- hostname # nodectl x")) == [["exec", "--", "hostname"]]
    assert list(calls("cat > x <<'E'\nnodectl nonsense\nE")) == []
    for good in (
        "nodectl lab up -n 3 --as dgx-a100",
        "nodectl -i x exec -- ls -l",
        "nodectl jobs logs last",
        "nodectl -h",
    ):
        assert refused(good) == [], good
    for bad in (
        "nodectl nonsense",
        "nodectl lab up --hots 3",
        "true; nodectl jobs log",
        "nodectl lab rate",
        "nodectl lab down x",
    ):
        assert refused(bad), bad
