"""What Ansible is given for a setting: the profile alone, and never as a template."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from nodectl.common.access import Access
from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.provision.events import ProvisionRun
from nodectl.provision.run import ProvisionRequest
from nodectl.trials import arming
from nodectl.trials.arming import TrialPlaybooks
from nodectl.trials.settings import merged_overrides, plain


def playbooks(monkeypatch: pytest.MonkeyPatch) -> tuple[TrialPlaybooks, list[ProvisionRequest]]:
    """Playbooks of a trial that run nothing, and what would have been run."""
    asked: list[ProvisionRequest] = []

    def run(request: ProvisionRequest, _: object) -> ProvisionRun:
        asked.append(request)
        return ProvisionRun("x", {}, (), ())

    monkeypatch.setattr(arming, "provision", run)
    return TrialPlaybooks("t", ("hosts.yml",), 1, Access(), lambda _: None), asked


@pytest.mark.parametrize(("profile", "variables"), [("own", {}), ("article-20g", {"nodectl_tuning": "article-20g"})])
def test_variables(profile: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    trial, asked = playbooks(monkeypatch)
    trial.put_on([Host("gpu01", "gpu01")], profile)
    (request,) = asked
    assert request.playbook == "trial_on" and request.inventory == ("hosts.yml",)
    assert {key: value for key, value in request.variables.items() if key.startswith("nodectl_")} == variables


@pytest.mark.parametrize("value", ["{{ lookup('pipe', 'id') }}", "{% if 1 %}", ["{# x #}"], {"{{ key }}": 1}])
def test_templates_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="template"):
        plain({"a": value})
    with pytest.raises(UsageError, match="template"):
        merged_overrides({}, {"nccl": {"NCCL_ALGO": value}})


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
