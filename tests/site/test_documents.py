"""The JSON Schemas of the reference fit the documents that nodectl prints, field by field."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodectl.cli.exec import _row
from nodectl.cli.terminal import as_json
from nodectl.ledger.accept import store as accept_store
from nodectl.model.acceptance import Acceptance, GpuIdentity, HostAcceptance, NodeVerdict, Seen, Step, Taken
from nodectl.model.finding import Finding
from nodectl.model.job import Failure, Job, JobPart, JobState, PastAttempt
from nodectl.model.measurement import Change, Comparison, Measurement
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.model.trial import Pair, Series, Trial
from nodectl.model.verdict import Outcome as Judged
from nodectl.model.verdict import Summary, Verdict
from nodectl.probes.base import ProbeResult
from nodectl.report.jobs import job_document
from nodectl.trials import store as trial_store
from scripts.site.reference import documents
from tests.conftest import Cli

FINDING = Finding("a", "tcp", Status.FAILED, kind="path", hosts=("a", "b"))
MEASUREMENT = Measurement("tcp", ("a", "b"), 9.4, "Gbit/s", "a > b", 9.0, 0.01, {"streams": 1})
FAILURE = Failure("a", 0, "exit", "it ended", 1, 2.0, "import_error", ("line",), "trace", "mend it")
VERDICT = Verdict("b", "a", "tcp", "x", None, "Gbit/s", Judged.BETTER, 3.0, 1.0, (2.0, 4.0), 10)


def problems(name: str, text: str) -> list[str]:
    """What the schema, without room for other fields, has against the document."""
    schema = documents.schema(name, closed=True)
    Draft202012Validator.check_schema(schema)
    return [
        f"{error.json_path}: {error.message[:200]}"
        for error in Draft202012Validator(schema).iter_errors(json.loads(text))
    ]


def _jobs() -> dict[str, Any]:
    parts = (JobPart("a", 0, "failed"), JobPart("b", 1, "unreachable", problem="no answer"))
    whole = Job(
        "1", JobState.FAILED, ("a", "b"), "t.py", ("x",), 2, parts, 1, FAILURE, (FAILURE,), 1.0, 2.0, "me",
        2, ("a",), 1, (PastAttempt(1, ("a",), 1.0, 2.0, FAILURE),),
    )  # fmt: skip
    bare = Job("2", JobState.RUNNING, ("a",), "t.py", (), 1, (JobPart("a", 0, "running"),))
    return {"jobs": [job_document(whole), job_document(bare)]}


def _accept() -> dict[str, Any]:
    host = HostAcceptance(
        "a", NodeVerdict.REJECTED, {"health": Status.FAILED}, "health", (Seen("health", FINDING),),
        "1", (GpuIdentity("GPU 0", "GPU-1"),),
    )  # fmt: skip
    steps = (Step("health", "facts", "node", ("a",)),)
    seen, taken = (Seen("health", FINDING),), (Taken("tcp", MEASUREMENT),)
    return accept_store.document_of(Acceptance("1", "quick", "f", 1.0, None, "lab", "0", steps, (host,), seen, taken))


def _trial() -> dict[str, Any]:
    whole = Trial(
        "1", "t", "u", True, "", "0", ("hosts.yml",), None, {"a": {"x": 1}}, "stock", ("b",),
        ("tcp",), 10, {"duration": 2},
        (Series("b", "stock", "tcp", "Gbit/s", (Pair(1.0, None), Pair(1.0, 2.0, True))),), (VERDICT,),
        (Summary("b", Judged.BETTER, (VERDICT,)),),
        (FINDING,), ({"streams": 1},),
    )  # fmt: skip
    return trial_store.document_of(whole)


def _probe(compared: Comparison | None = None) -> dict[str, Any]:
    return asdict(ProbeResult((MEASUREMENT,), (FINDING,))) | ({"comparison": asdict(compared)} if compared else {})


CHANGED = Comparison("last", (Change("tcp", ("a",), "", "x", None, "us", 1.0, 2.0, 100.0, None),), ("n",), ("o",))
EXEC = {
    "results": [
        _row(CommandResult("a", ("true",), Outcome.RAN, 0, "", "", 0.1)),
        _row(CommandResult("b", ("true",), Outcome.UNREACHABLE, None, "", "", 0.1, "no route", "look")),
    ]
}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("accept", _accept()),
        ("accept", {"folder": "/x", **_accept()}),
        ("exec", EXEC),
        ("jobs", _jobs()),
        ("probe", _probe()),
        ("probe", _probe(CHANGED)),
        ("tune-trial", _trial()),
    ],
)
def test_what_is_printed_fits_its_schema(name: str, document: dict[str, Any]) -> None:
    text = as_json(name, document)
    assert problems(name, text) == []
    whole = json.loads(text)
    for field in set(whole) - {"folder", "comparison"}:
        assert problems(name, json.dumps({key: value for key, value in whole.items() if key != field})) != []
    assert problems(name, json.dumps({**whole, "odd": 1})) != []


def test_health_of_a_recording_fits_its_schema(nodectl: Cli) -> None:
    done = nodectl("--replay", "rtx4090-3", "health", "--output", "json", check=False)
    assert problems("health", done.stdout) == []


def test_doctor_without_hosts_fits_its_schema(nodectl: Cli) -> None:
    done = nodectl("-i", "/absent", "doctor", "--output", "json", check=False)
    assert problems("doctor", done.stdout) == []


def test_documents_are_found_with_their_commands() -> None:
    printed = documents.printed()
    assert set(documents.SHAPES) < set(printed)
    assert printed["plan"] == {"launch"} and printed["bench-retrieval"] == {"bench"} and printed["watch"] == {"jobs"}
    assert all(re.fullmatch("[a-z-]+", name) and commands for name, commands in printed.items())
