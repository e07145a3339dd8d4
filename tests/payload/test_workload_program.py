"""A workload's program as the operator's side starts it: ranks meet, rank 0's summary comes back, refusals are told."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from nodectl.articles.gangs import workload_sources
from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from tests.payload.fleet import free_port
from tests.torch_venv import torch_venv

TINY = ["--device=cpu", "--layers=1", "--d-model=8", "--heads=2", "--seq=4", "--batch=2", "--steps=4", "--no-resume"]


def run(ranks: int, *arguments: str) -> tuple[list[dict[str, Any]], "subprocess.CompletedProcess[str]"]:
    given = {
        "rank-base": 0,
        "nproc": ranks,
        "world-size": ranks,
        "master-addr": "127.0.0.1",
        "master-port": free_port(),
        "backend": "gloo",
        "timeout": 60,
        "interface": "lo",
        "program": "transformer",
        "arguments": json.dumps([*TINY, *arguments]),
    }
    argv = [f"{torch_venv()}/bin/python", str(payload_dir() / "run.py"), "articles.workload"]
    argv += [f"--{name}={value}" for name, value in given.items()]
    done = subprocess.run(argv, input=workload_sources().decode(), capture_output=True, text=True, check=False, env={
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"
    })  # fmt: skip
    return [json.loads(text) for text in texts(done.stdout)], done


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--parallel=ddp", "this is the only one: start it by torchrun"),
        pytest.param("--lr=-1", "--lr", marks=pytest.mark.slow),
    ],
)
def test_a_refusal_is_told_in_its_own_words(argument: str, said: str) -> None:
    events, done = run(1, argument)
    assert done.returncode != 0
    errors = [event["text"] for event in events if event.get("refused")] or done.stderr.splitlines()[-1:]
    assert said in errors[0]


def test_a_rank_that_was_killed_is_told_by_its_signal() -> None:
    given = {"rank-base": 0, "nproc": 2, "world-size": 2, "master-addr": "127.0.0.1", "master-port": 1,
             "backend": "gloo", "timeout": 60, "program": "dies", "arguments": "[]"}  # fmt: skip
    program = "import os, time\nif os.environ['LOCAL_RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)\n"
    argv = [sys.executable, str(payload_dir() / "run.py"), "articles.workload"]
    argv += [f"--{name}={value}" for name, value in given.items()]
    done = subprocess.run(argv, input=json.dumps({"dies": program}), capture_output=True, text=True, check=False)
    events = [json.loads(text) for text in texts(done.stdout)]
    assert done.returncode and [event["event"] for event in events] == ["started", "error"]
    assert events[-1]["text"] == "local rank 1 was ended by SIGKILL" and "memory" in events[-1]["remedy"]
