"""Misspelled variables of an inventory."""

import re

import pytest

from nodectl.common.resources import share_dir
from nodectl.profiles.role_values import INVENTORY_VARIABLES, misspelled, role_variables

SHARE = share_dir()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nodectl_harware", "nodectl_hardware"),
        ("nodectl_tunning", "nodectl_tuning"),
        ("nodectl_allow_reboots", "nodectl_allow_reboot"),
        ("kernel_settings_files", "kernel_settings_file"),
        ("rdma_soft_roces", "rdma_soft_roce"),
        ("nvidia_repo_base_url", "nvidia_repo_baseurl"),
        ("limits_nofiles", "limits_nofile"),
    ],
)
def test_a_name_nearly_ours_is_a_slip(written: str, meant: str) -> None:
    assert misspelled([written, "ansible_host"], SHARE) == [(written, meant)]


def test_no_name_that_we_read_is_refused() -> None:
    roles = [path for path in (SHARE / "roles").iterdir() if path.is_dir()]
    ours = set(INVENTORY_VARIABLES).union(*map(role_variables, roles))
    assert len(ours) > 100
    assert misspelled(ours, SHARE) == []


def test_each_inventory_variable_is_read_somewhere() -> None:
    folders = [SHARE / "playbooks", SHARE / "roles", SHARE / "nodectl"]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".yml", ".j2")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    read = set(re.findall(r"\b(?:nodectl|nvidia_repo)_\w+", "\n".join(texts)))
    assert read >= INVENTORY_VARIABLES
