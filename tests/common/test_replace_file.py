"""Files that are replaced as a whole."""

import os
from pathlib import Path

import pytest

from nodectl.common.files import local_path, replace_file


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_content_and_the_mode_are_as_asked_for_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    previous = os.umask(0o077)
    try:
        replace_file(path, "after \udcff", mode=mode, sync=True)
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"after \xff"
    assert path.stat().st_mode & 0o777 == mode


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"after", sync=True)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"


def test_a_pipe_or_device_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe, 0o666)
    link.symlink_to(pipe)
    mode = pipe.stat().st_mode
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, link):
            replace_file(path, b"text")
            assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.stat().st_mode == mode
    assert link.is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link, above = folder / "file", tmp_path / "link", tmp_path / "above"
    if there:
        target.write_text("before")
    link.symlink_to("elsewhere/file")
    above.symlink_to(link)
    replace_file(above, "after")
    assert target.read_text() == "after"
    assert (link.is_symlink(), above.is_symlink()) == (True, True)
    assert [each.name for each in folder.iterdir()] == ["file"]


@pytest.mark.skipif(os.getuid() != 0, reason="makes files of other logins, which takes root")
@pytest.mark.parametrize("where", ["file", "folder", "up"])
def test_a_link_of_another_login_is_not_followed(tmp_path: Path, where: str) -> None:
    """The login's own folder, in which the kernel protects from nothing."""
    secret, theirs = tmp_path / "etc" / "shadow", tmp_path / "mallory"
    secret.parent.mkdir()
    secret.write_text("as it was")
    theirs.mkdir()
    link = theirs / ("shadow" if where == "file" else "out")
    link.symlink_to(secret if where == "file" else secret.parent)
    os.lchown(link, 65534, 65534)
    path = {"file": link, "folder": link / "shadow", "up": theirs / "out" / ".." / "etc" / "shadow"}[where]
    with pytest.raises(OSError, match=r"a link of login 65534, who decides where it leads; name the file itself"):
        replace_file(path, "text")
    assert secret.read_text() == "as it was" and [each.name for each in secret.parent.iterdir()] == ["shadow"]
    os.lchown(link, 0, 0)
    replace_file(path, "text")
    assert secret.read_text() == "text"


def test_a_file_keeps_its_owner_and_gives_no_more_than_before(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("before")
    path.chmod(0o600)
    if os.getuid() == 0:
        os.chown(path, 65534, 65534)
    owner = path.stat().st_uid
    replace_file(path, "after", mode=0o644)
    assert (path.stat().st_mode & 0o777, path.stat().st_uid, path.read_text()) == (0o600, owner, "after")


def test_a_file_that_is_open_is_written_on_and_nothing_is_replaced(tmp_path: Path) -> None:
    # as /dev/stdout is, behind `>> file`: to replace it would take the machine's /dev/stdout away
    path = tmp_path / "file"
    path.write_bytes(b"before ")
    with path.open("ab") as stream:
        replace_file(Path(f"/dev/fd/{stream.fileno()}"), "after")
    assert path.read_bytes() == b"before after"


@pytest.mark.parametrize(
    "name",
    ["../victim", "d/../../victim/authorized_keys", "/etc/passwd", "..", ".", "", ".ssh", "a\0b", "a/b", "\udcff"],
)
def test_a_name_of_somebody_else_is_one_component_below_the_folder(tmp_path: Path, name: str) -> None:
    for names in ((name,), ("gpu01", name), (name, "json")):
        path = local_path(tmp_path, *names)
        assert path.parent == tmp_path and path.resolve().parent == tmp_path.resolve()
        assert not path.name.startswith(".") and "\0" not in path.name
