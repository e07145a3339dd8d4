"""Ways to die and ways to hang, each made for real: torchrun over gloo on three lab hosts, and what `jobs why` says.

NCCL's own texts need GPUs: where a rank prints one, it is a recorded text, and the scenario's name says so.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from tests.jobs.deaths import (
    ANY,
    DEATHS,
    HANGS,
    NOBODY,
    SHORT_S,
    Case,
    Lab,
)

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("case", [case for case in HANGS if case.timeout_s == SHORT_S], ids=lambda case: case.name)
def test_a_running_job_says_who_waits_for_whom(lab: Lab, case: Case) -> None:
    job_id = lab.begin(replace(case, timeout_s=600))
    lab.wait_up(job_id)
    if case.act is not None:
        case.act(lab, job_id)
    time.sleep(2)  # until the others wait
    job = lab.job(job_id)
    look = job["look"]
    assert (job["state"], look["missing"]) == ("running", [1]), json.dumps(look, indent=1)
    assert "rank 0, 2 wait in all_reduce for rank 1: it is " in look["verdict"]
    assert case.words[0] in look["verdict"]
    assert {rank["rank"]: rank["waits"] for rank in look["ranks"]} == {0: True, 1: False, 2: True}
    assert lab.run("jobs", "why", job_id).stdout.startswith(look["verdict"])
    assert lab.job(job_id)["state"] == "running"


@pytest.mark.parametrize("case", [*DEATHS, *HANGS], ids=lambda case: case.name)
def test_the_first_cause_its_rank_and_its_class(lab: Lab, case: Case) -> None:
    job_id = lab.begin(case)
    if case.act is not None:
        lab.wait_up(job_id)
        case.act(lab, job_id)
    job = lab.wait_ended(job_id)
    first = job["first_failure"]
    assert job["state"] == "failed", job
    assert first is not None, job
    allowed = case.blamed if isinstance(case.blamed, tuple) else (case.blamed,)
    blamed = first["rank"] if case.blamed == ANY or first["rank"] in allowed else allowed[0]
    assert (first["class"], first["rank"]) == (case.category, blamed), json.dumps(job, indent=1)
    if case.blamed not in (ANY, NOBODY):
        assert first["host"] == lab.hosts[1 if blamed is None else blamed // case.nproc], first
    said = "\n".join([first["message"], *first["evidence"]])
    assert [words for words in case.evidence if words not in said] == [], json.dumps(job, indent=1)
    assert [words for words in case.never if words in f"{said}\n{first['remedy']}"] == [], json.dumps(job, indent=1)
    for word in case.words:
        assert word in first["message"], first
    for word in case.not_words:
        assert word not in first["message"], first
    assert first["remedy"], first
