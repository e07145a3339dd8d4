"""Groups and files of a proposed inventory: a folder gets all files or none."""

import os
from pathlib import Path

import pytest

from nodectl.doctor.draft import group_name, write_all
from nodectl.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("profile", "taken", "name"),
    [
        ("rtx4090-3", (), "rtx4090_3"),
        ("8x-own", (), "hosts_8x_own"),
        ("all", (), "hosts_all"),
        ("gpu", ("gpu",), "gpu_hosts"),
        ("größe.1", (), "gr__e_1"),
    ],
)
def test_groups_are_called_as_ansible_allows(profile: str, taken: tuple[str, ...], name: str) -> None:
    assert group_name(profile, taken) == name


def test_no_file_is_written_over_without_force(tmp_path: Path) -> None:
    files = {Path("hosts.yml"): "new\n", Path("group_vars/a.yml"): "new\n"}
    (tmp_path / "hosts.yml").write_text("mine\n")
    with pytest.raises(UsageError, match=r"hosts\.yml is there already"):
        write_all(tmp_path, files, force=False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["hosts.yml"]
    write_all(tmp_path, files, force=True)
    assert (tmp_path / "hosts.yml").read_text() == "new\n"


def test_a_file_in_the_folders_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "fleet").write_text("a file\n")
    with pytest.raises(UsageError, match="fleet is a file"):
        write_all(tmp_path / "fleet", {Path("hosts.yml"): ""}, force=True)
    assert (tmp_path / "fleet").read_text() == "a file\n"


def test_the_folder_has_the_modes_of_the_operators_umask(tmp_path: Path) -> None:
    former = os.umask(0o027)
    try:
        write_all(tmp_path / "a" / "fleet", {Path("hosts.yml"): ""}, force=False)
    finally:
        os.umask(former)
    assert (tmp_path / "a" / "fleet").stat().st_mode & 0o777 == 0o750
