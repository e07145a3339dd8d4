"""Jobs that hang with nobody at the terminal: what `jobs why` says of them after their end, over torchrun and gloo."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.jobs.deaths import Case, Lab
from tests.jobs.test_deaths import lab, prepared  # noqa: F401 - fixtures

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_STEPS = """
def work():
    for step in range(1, 1000):
        if step == 60 and rank == 1:
            load()
        dist.all_reduce(one)
        print(f"step {step}/1000 loss 0.5", flush=True)
        time.sleep(0.1)
work()
"""
HANGS = {
    "sleeps": "def load():\n    time.sleep(1000)",
    "spins": "def load():\n    while True: pass",
    "reads_a_pipe": "def load():\n    os.read(os.pipe()[0], 1)",
    "waits_for_a_thread": "import threading\ndef load():\n    threading.Event().wait()",
    # a mutex that the thread holds already: the interpreter's lock stays held, too
    "deadlocks_in_native_code": "import ctypes\ndef load():\n    c, held = ctypes.PyDLL(None), bytes(40)\n"
    "    c.pthread_mutex_lock(held)\n    c.pthread_mutex_lock(held)",
}


def why(lab: Lab, job_id: str) -> dict[str, Any]:  # noqa: F811
    job: dict[str, Any] = json.loads(lab.run("--output", "json", "jobs", "why", job_id).stdout)["jobs"][0]
    return job


@pytest.mark.parametrize("kind", sorted(HANGS))
def test_the_rank_and_the_line_are_known_after_the_time_limit(lab: Lab, kind: str) -> None:  # noqa: F811
    case = Case(kind, "time_limit", after=f"{HANGS[kind]}\n{_STEPS}", options=("--time-limit", "75"))
    job_id = lab.begin(case)
    lab.wait_ended(job_id)
    job = why(lab, job_id)
    first, (suspicion, *_) = job["first_failure"], job["black_box"]
    assert (first["class"], first["rank"], first["host"]) == ("time_limit", 1, lab.hosts[1]), first
    assert "wait in all_reduce for rank 1: it is at" in first["message"] and "load" in first["message"], first
    assert suspicion["kind"] == "suspicion" and "for 2" in suspicion["why"], suspicion["why"]
    assert suspicion["look"]["missing"] == [1], suspicion["look"]["verdict"]
