"""The table of events: each phase is there, each promise stands in docs/jobs.md, and a verdict sees what is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.chaos import left, verdict
from scripts.chaos.cases import LEASE_S, SILENT_S, STOP_S, Expect, Phase
from scripts.chaos.events import EVENTS

_DOCS = (Path(__file__).resolve().parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
_OF_A_START = {"start-killed", "start-hung-up"}
_EVERYWHERE = {Phase.STARTING, Phase.RUNNING, Phase.STOPPING}


def test_names_are_unique_and_there_are_enough_events() -> None:
    names = [event.name for event in EVENTS]
    assert len(names) == len(set(names))
    assert len([event for event in EVENTS if set(event.expects) >= _EVERYWHERE]) >= 24


def test_an_event_is_tried_in_every_phase() -> None:
    assert {event.name for event in EVENTS if not set(event.expects) >= _EVERYWHERE} <= _OF_A_START


def test_each_promise_stands_in_the_docs() -> None:
    for event in EVENTS:
        for phase, expect in event.expects.items():
            assert _one_line(expect.promise) in _one_line(_DOCS), (event.name, phase)
            assert all(f"| `{category}` |" in _DOCS for category in expect.classes), (event.name, phase)
            assert (phase is Phase.RESTARTED) == bool(event.options.get(phase, ("",))[0] in ("--restarts", "--spares"))


def test_the_promised_times_are_those_of_the_docs() -> None:
    assert "all get SIGTERM after 1 s, SIGKILL 3 s later" in _DOCS
    assert (SILENT_S - LEASE_S, STOP_S) == (4.0, 3.0)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


_KILLED = Expect("", ("failed",), ("killed_from_outside",), host=1, rank=1, within_s=4.0)


def _job(**changes: Any) -> dict[str, Any]:
    cause = {"class": "killed_from_outside", "host": "b", "rank": 1, "message": "killed by signal 9"}
    return {"state": "failed", "hosts": ["a", "b"], "first_failure": cause, "past_attempts": [], **changes}


def test_a_right_end_is_no_problem() -> None:
    assert verdict.wrong_end(_KILLED, Phase.RUNNING, _job(), 1) == []
    past = [{"cause": _job()["first_failure"]}]
    back = replace(_KILLED, states=("finished",), exits=(0,))
    assert verdict.wrong_end(back, Phase.RESTARTED, _job(state="finished", past_attempts=past), 0) == []
    assert verdict.wrong_end(Expect("", ("undone",), exits=(130,)), Phase.STARTING, None, 130) == []


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"state": "finished"}, 1, "it is finished, not failed"),
        ({}, 0, "the launch ended with 0, not 1"),
        ({}, None, "the launch ended with None"),
        ({"first_failure": None}, 1, "no cause is told"),
        ({"first_failure": {"class": "exit", "host": "b", "rank": 1, "message": "x"}}, 1, "the cause is exit of b"),
        (
            {"first_failure": {"class": "killed_from_outside", "host": "a", "rank": 1, "message": "x"}},
            1,
            "not killed_from_outside of b",
        ),
        (
            {"first_failure": {"class": "killed_from_outside", "host": "b", "rank": 0, "message": "x"}},
            1,
            "not killed_from_outside of b, rank 1",
        ),
    ],
)
def test_a_wrong_end_is_told(changes: dict[str, Any], status: int | None, says: str) -> None:
    assert says in "; ".join(verdict.wrong_end(_KILLED, Phase.RUNNING, _job(**changes), status))


_EMPTY = left.Snapshot({}, frozenset(), frozenset(), frozenset(), frozenset())


def test_what_the_docs_name_is_no_left_over_and_all_else_is() -> None:
    base = "root/.local/state/nodectl"
    named = {f"{base}/jobs/a-1/{name}" for name in ("plan.json", "secret", "ranks/x/0/stdout.log", "state.reserve2")}
    named |= {f"{base}/payload/f00/run.py", f"{base}/checkpoints/t-1/step-1.pt", f"{base}/jobs/.a-1.undone"}
    more = {f"{base}/jobs/a-1/env.json", "tmp/torchelastic_1", f"{base}/jobs/.a-1.partial/plan.json"}
    found = left.unnamed(_EMPTY, replace(_EMPTY, files=frozenset(named | more)))
    assert found == [f"file: {name}" for name in sorted(more)]
    kept = left.uncleaned(_EMPTY, replace(_EMPTY, files=frozenset(named)))
    assert kept == [
        f"file: {base}/jobs/a-1/{n}" for n in ("plan.json", "ranks/x/0/stdout.log", "secret", "state.reserve2")
    ]
    lives = replace(_EMPTY, processes={7: "sleep"}, ports=frozenset({"udp 9"}), shared_memory=frozenset({"torch_1"}))
    assert left.living(_EMPTY, lives) == ["process: sleep", "port: udp 9", "shared memory: torch_1"]
