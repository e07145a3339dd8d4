"""Inventories of the kinds: their profiles exist and work together, and a folder gets all files or none."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.doctor.draft import group_name, kind_draft, kinds, write_all
from nodectl.errors import UsageError
from nodectl.profiles.host import of_host
from nodectl.transport.inventory import read_inventory

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", kinds())
def test_the_profiles_of_a_kind_work_together_and_each_choice_has_its_reason(name: str, tmp_path: Path) -> None:
    draft = kind_draft(name)
    write_all(tmp_path / "fleet", draft.files(), force=False)
    hosts = read_inventory([str(tmp_path / "fleet" / "hosts.yml")]).hosts()
    assert [host.name for host in hosts] == ["node01", "node02"]
    wanted = of_host(hosts[0])
    assert wanted is not None and set(wanted.names) == {"hardware", "stack", "tuning"}
    (text,) = [text for path, text in draft.files().items() if path.parent.name == "group_vars"]
    for block in text.strip().split("\n\n"):
        assert block.removeprefix("---\n").startswith("# ")


_EXAMPLE = "# An example, which nodectl takes for no inventory until somebody changes it."


def test_the_repositorys_inventory_is_what_the_kind_lab_writes() -> None:
    files = kind_draft("lab").files()
    there = {path.relative_to(ROOT / "inventory") for path in (ROOT / "inventory").rglob("*.yml")}
    assert there == set(files)
    for path, text in files.items():
        told = (ROOT / "inventory" / path).read_text()
        # the repository's says that it is an example, so that one that was asked for is none
        assert told == (text.replace(text.splitlines()[1], _EXAMPLE, 1) if path.name == "hosts.yml" else text)


def test_an_unknown_kind_is_told_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        kind_draft("h100-9")
    assert "h100-8" in caught.value.remedy


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


def test_the_command_writes_and_says_what_is_next(nodectl: Callable[..., Any], tmp_path: Path) -> None:
    done = nodectl("--output", "json", "init", str(tmp_path / "a fleet"), "--kind", "h100-8")
    document = json.loads(done.stdout)
    assert document["schema"] == "nodectl.init/1"
    assert document["groups"][0]["nodectl_hardware"] == "h100-8"
    assert yaml.safe_load((tmp_path / "a fleet" / "hosts.yml").read_text())["all"]["children"]["h100_8"]["hosts"]
    assert "nodectl provision --check --diff" in done.stderr and "/a fleet/hosts.yml'" in done.stderr
    again = nodectl("init", str(tmp_path / "a fleet"), "--kind", "h100-8", check=False)
    assert again.returncode == 2 and "--force" in again.stderr
