"""A folder that another login decides about is refused, whatever way leads to it."""

import os
from pathlib import Path

import pytest

from nodectl.common.paths import refuse_open, state_dir
from nodectl.errors import UsageError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of another login need root")
_EVE = 65534


@pytest.fixture
def eve(tmp_path: Path) -> Path:
    """A folder of another login."""
    folder = tmp_path / "eve"
    folder.mkdir()
    os.chown(folder, _EVE, _EVE)
    return folder


def test_what_lies_in_my_own_folders_is_mine(tmp_path: Path) -> None:
    refuse_open(tmp_path / "not" / "there", "it is used")
    (tmp_path / "link").symlink_to(tmp_path)
    refuse_open(tmp_path / "link" / ".." / "x", "it is used")


def test_a_way_through_anothers_folder_or_by_anothers_link_is_refused(tmp_path: Path, eve: Path) -> None:
    (tmp_path / "mine").mkdir()
    (eve / "there").symlink_to(tmp_path / "mine")
    (tmp_path / "to-eve").symlink_to("eve")
    (tmp_path / "hers").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "hers", _EVE, _EVE)
    for place in (eve / "there", eve / "new", tmp_path / "to-eve", tmp_path / "hers", tmp_path / "hers" / "x"):
        with pytest.raises(UsageError, match=f"is of login {_EVE}, and it is used"):
            refuse_open(place, "it is used")


def test_a_folder_that_everybody_may_write_is_refused_and_a_sticky_one_is_passed(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="may be written by everybody"):
        refuse_open(tmp_path / "x", "it is used")
    tmp_path.chmod(0o1777)
    (tmp_path / "x").mkdir()
    refuse_open(tmp_path / "x", "it is used")


def test_no_state_is_kept_where_another_login_decides(eve: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eve.chmod(0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(eve))
    with pytest.raises(UsageError, match=f"{eve} is of login {_EVE}, .*XDG_STATE_HOME"):
        state_dir()
    assert not (eve / "nodectl").exists()
