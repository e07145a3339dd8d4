"""What runs programs on this machine from the current folder must be the operator's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.transport.inventory import read_inventory, read_settings

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of another login need root")
_EVE = 65534
_FILES = {
    "ansible.cfg": "[defaults]\ninventory = hosts.yml\n",
    "hosts.yml": "all:\n  hosts:\n    node01:\n",
    "fleet/hosts.yml": "all:\n  hosts:\n    node01:\n",
    "fleet/group_vars/all/a.yml": "a: 1\n",
    "group_vars/all.yml": "a: 1\n",
    "host_vars/node01.yml": "a: 1\n",
    "profiles/mine.yml": "a: 1\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's folder with all that Ansible reads there."""
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("how", ["owner", "everybody", "group"])
def test_what_another_login_decides_about_is_refused(folder: Path, name: str, how: str) -> None:
    assert read_inventory(["hosts.yml", "fleet"]).names() == ("node01",)
    if how == "owner":
        os.chown(name, _EVE, _EVE)
    else:
        os.chown(name, -1, 4711)
        Path(name).chmod(0o666 if how == "everybody" else 0o664)
    reason = {"owner": f"is of login {_EVE}", "everybody": "written by everybody", "group": "written by its group"}[how]
    with pytest.raises(UsageError, match=f"{name} .*{reason}.*runs programs on this machine"):
        read_inventory(["hosts.yml", "fleet"])
    if name == "ansible.cfg":
        with pytest.raises(UsageError, match=reason):
            read_settings()


def test_an_inventory_of_others_elsewhere_is_read_if_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown("hosts.yml", _EVE, _EVE)
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    assert read_inventory([str(folder / "hosts.yml")]).names() == ("node01",)
    Path("link.yml").symlink_to("../hosts.yml")
    with pytest.raises(UsageError, match="is of login"):
        read_inventory(["link.yml"])


@pytest.mark.parametrize("place", ["plugins/mine.py", "vault.sh", "inventory/nodectl.toml", "ansible.cfg"])
def test_a_command_ends_with_2_before_it_runs_anything(nodectl: Any, folder: Path, place: str) -> None:
    ran = folder / "ran"
    (folder / "ansible.cfg").write_text(
        "[defaults]\ninventory = hosts.yml\nvars_plugins = plugins\nvault_password_file = vault.sh\n"
    )
    for name, text in {"plugins/mine.py": f"open('{ran}', 'w')\n", "vault.sh": f"#!/bin/sh\ntouch {ran}\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "inventory").mkdir()
    (folder / "inventory/nodectl.toml").write_text("forks = 2\n")
    os.chown(place, _EVE, _EVE)
    for words in (["exec", "--", "true"], ["launch", "--dry-run", "x.py"], ["provision", "--check"]):
        done = nodectl(*words, check=False)
        assert (done.returncode, f"{place} is of login {_EVE}" in done.stderr) == (2, True), (words, done.stderr)
    done = nodectl("doctor", check=False)  # it shows what is wrong
    assert done.returncode in (1, 2) and f"{place} is of login {_EVE}" in " ".join((done.stdout + done.stderr).split())
    assert not ran.exists()
