"""What Ansible is given for a setting: over a host's own variables, privately, and never as a template."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.trial import Side
from nodectl.trials.settings import given, overrides_for, plain

RMEM = {"sysctl": {"net.ipv4.tcp_rmem": {"value": "1 2 3", "never_lower": False}}}


def host(name: str, **overrides: Any) -> Host:
    return Host(name, name, variables={"nodectl_overrides": overrides} if overrides else {})


@pytest.mark.parametrize(
    ("side", "variables"),
    [
        (Side("own"), {}),
        (Side("a", profile="article-20g"), {"nodectl_tuning": "article-20g"}),
        (Side("b", overrides=RMEM), {"nodectl_overrides": "{{ nodectl_trial_overrides }}"}),
        (
            Side("c", profile="stock", overrides=RMEM),
            {"nodectl_tuning": "stock", "nodectl_overrides": "{{ nodectl_trial_overrides }}"},
        ),
    ],
)
def test_variables(side: Side, variables: dict[str, str]) -> None:
    with given(side, [host("gpu01")]) as (found, inventories):
        assert found == variables and len(inventories) == (side.overrides is not None)


def test_each_hosts_own_stay_below_the_setting_and_nobody_else_can_read_them() -> None:
    hosts = [host("gpu01", nccl={"NCCL_IB_TIMEOUT": 22}, sysctl={"vm.swappiness": 1}), host("gpu02")]
    with given(Side("x", overrides=RMEM), hosts) as (_, (source,)):
        path = Path(source)
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
        rows = yaml.safe_load(path.read_text())["all"]["hosts"]
    assert not path.parent.exists()
    assert rows["gpu01"]["nodectl_trial_overrides"] == {
        "nccl": {"NCCL_IB_TIMEOUT": 22},
        "sysctl": {"vm.swappiness": 1, **RMEM["sysctl"]},
    }
    assert rows["gpu02"]["nodectl_trial_overrides"] == RMEM


@pytest.mark.parametrize("value", ["{{ lookup('pipe', 'id') }}", "{% if 1 %}", ["{# x #}"], {"{{ key }}": 1}])
def test_templates_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="template"):
        plain({"a": value})
    with pytest.raises(UsageError, match="template"):
        overrides_for(host("gpu01"), {"nccl": {"NCCL_ALGO": value}})


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_polite_ends_are_heard_as_one(number: str) -> None:
    script = (
        "import os, signal, json\n"
        "from nodectl.common.process import interruptible\n"
        # where a shell or nohup started these tests, they may be deaf to some
        f"signal.signal(signal.{number}, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n"
        "    with interruptible():\n"
        f"        os.kill(os.getpid(), signal.{number})\n"
        "        signal.pause()\n"
        "except KeyboardInterrupt:\n"
        "    print(json.dumps('heard'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert json.loads(done.stdout) == "heard"
