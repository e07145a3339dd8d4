"""The nccl_env role alone in somebody else's playbook: a file that is not nodectl's can be put back."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest
from tests.playbooks import ansible_playbook

ROLE = """
- hosts: all
  gather_facts: false
  tasks:
    - import_role: {name: nodectl.fleet.nccl_env}
      vars:
        nccl_env_variables: {NCCL_IB_TIMEOUT: "22"}
"""
WRONG = {
    "NCCL_ALGO": "Foo",
    "NCCL_DEBUGG": "INFO",
    "NCCL_IB_TC": " 106",
    "NCCL_NET": "IB",
    "NCCL_IB_DISABLE": 1,
    "nccl_proto": "LL",
    "NCCL_CONF_FILE": "/own",
}


def test_the_role_alone_refuses_what_a_profile_refuses(tmp_path: Path, cli_env: dict[str, str]) -> None:
    (tmp_path / "play.yml").write_text(ROLE.replace('{NCCL_IB_TIMEOUT: "22"}', json.dumps(WRONG)))
    env = {**os.environ, **cli_env, "ANSIBLE_CONFIG": str(share_dir() / "ansible.cfg")}
    done = ansible_playbook("-i", "here,", "-c", "local", "--check", str(tmp_path / "play.yml"), env=env)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "changed=0" in said
    for reason in (
        "NCCL_ALGO=Foo: NCCL_ALGO takes a list of Ring",
        "NCCL_DEBUGG=INFO: no NCCL reads a variable of that name; did you mean NCCL_DEBUG?",
        "NCCL_IB_TC= 106:",
        "nccl_proto=LL: neither NCCL nor a plug-in reads",
        "NCCL_CONF_FILE=/own: it names the file that NCCL reads first",
        "NCCL_IB_DISABLE=1 takes that network away",
    ):
        assert reason in said, said


@pytest.mark.lab
@pytest.mark.slow
def test_a_role_alone_keeps_a_copy_of_a_file_that_it_did_not_write(
    lab4: LabUnderTest, ansible_play: Callable[..., Any]
) -> None:
    host, own = lab4.hosts[2], "NCCL_DEBUG=WARN"
    lab4.ssh(host, f"echo {own} > /etc/nccl.conf; chmod 640 /etc/nccl.conf")
    assert ansible_play(ROLE, lab4, host).changed == 1
    assert "NCCL_IB_TIMEOUT=22" in lab4.ssh(host, "cat /etc/nccl.conf")
    assert ansible_play(ROLE, lab4, host).changed == 0
    left = "cat /etc/nccl.conf.*~; stat -c %a /etc/nccl.conf.*~; rm /etc/nccl.conf*"
    assert lab4.ssh(host, left).split() == [own, "640"]
