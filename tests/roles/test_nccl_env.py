"""The nccl_env role alone in somebody else's playbook: a file that is not nodectl's can be put back."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import LabUnderTest

ROLE = """
- hosts: all
  gather_facts: false
  tasks:
    - import_role: {name: nodectl.fleet.nccl_env}
      vars: {nccl_env_variables: {NCCL_IB_TIMEOUT: "22"}}
"""
BACK = """
- hosts: all
  gather_facts: false
  tasks:
    - nodectl.fleet.node_rollback: {state: undone}
"""


@pytest.mark.lab
@pytest.mark.slow
def test_a_foreign_file_is_recorded_and_comes_back(lab4: LabUnderTest, ansible_play: Callable[..., Any]) -> None:
    host, own = lab4.hosts[2], "NCCL_DEBUG=WARN"
    lab4.ssh(host, f"echo {own} > /etc/nccl.conf; chmod 640 /etc/nccl.conf")
    assert ansible_play(ROLE, lab4, host).changed == 1
    assert "NCCL_IB_TIMEOUT=22" in lab4.ssh(host, "cat /etc/nccl.conf")
    assert ansible_play(ROLE, lab4, host).changed == 0
    assert ansible_play(BACK, lab4, host).changed == 1
    assert lab4.ssh(host, "cat /etc/nccl.conf; stat -c %a /etc/nccl.conf; rm /etc/nccl.conf").split() == [own, "640"]
