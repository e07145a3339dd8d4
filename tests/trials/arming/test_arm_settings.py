"""Ansible is given no value as a template, and polite ends of the process are heard."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.trials.sides import merged_overrides, plain


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
