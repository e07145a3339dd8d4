"""An unreadable answer of one host: it is reported as that host's, and the other hosts' jobs are shown and stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nodectl.cli.root import cli as nodectl
from nodectl.errors import NodectlError
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import encode

JOB = "20261124-040000-ab12"
CALL = {"collective": "gloo:all_reduce", "number": 3, "sizes": "[[8]]", "types": "Float", "state": "started"}
GROUPS = {"0": {**CALL, "called_at": "t.py:1 f", "members": [0, 1], "recent": [CALL], "pending": CALL}}


def failure(kind: str, rank: int | None, message: str, **more: Any) -> dict[str, Any]:
    words = {"class": "script_error", "evidence": ["it said so"], "traceback": "Traceback\n  x", "flight": GROUPS}
    return {"kind": kind, "message": message, "rank": rank, "exit_status": 1, "time": 1e9 + 9, **words, **more}


def told(place: int, names: Sequence[str] = ("a", "b", "c"), job_id: str = JOB, **state: Any) -> dict[str, Any]:
    """A row of `list`, with all that a host may tell."""
    plan = {"id": job_id, "created_at": 1e9, "operator": "me@laptop", "script": "train.py", "args": ["--x"]}
    plan |= {"hosts": [{"name": name} for name in names], "nproc_per_node": 2, "lease_s": 8.0, "checkpoint": None}
    first, second = 2 * place, 2 * place + 1
    inner = {
        "state": "failed", "final": True, "pid": 7, "start_ticks": 9, "containment": {"cgroup": None},
        "failures": [failure("communication", first, "it waited", **{"class": "collective_timeout"})],
        "ends": [{"rank": first, "code": 1, "time": 1e9 + 9, "stopped": False}],
        "living": [{"rank": second, "state": "S", "stack": ["/c/data.py:33 load"]}],
        "xids": [],
        "flight": {str(first): {"groups": GROUPS}}, "lost": [], "checkpoint": None, "ended_at": 1e9 + 10,
        "exit_status": 1, "heard": {}, "attempt": 2, "roster": [0, 1, 2], "no_restart": "none was wanted",
        "attempts": [
            {"number": 1, "hosts": list(names), "begun_at": 1e9, "ended_at": 1e9 + 5, "log_begin": 0,
             "cause": {**failure("exception", 0, "ValueError: x"), "host": "a"}}
        ],
        "outputs": ["out.txt", "2 more"],
        **state,
    }  # fmt: skip
    more = {"nodes": None, "restarts": 3, "skipped": ["disk: 95 %"]}
    row = {"id": job_id, "plan": {**plan, **more}, "rank": place, "problem": "", "alive": False, "processes": 0}
    traces = [{"rank": first, "problem": "", "steps": 5, "step_ms": 9.0, "compute_percent": 50.0}]
    return {**row, "stopped_by": "", "traces": traces, "state": inner}


class Fleet:
    """Hosts a, b and c; each answers what `says` has for the command, and what they were asked is kept."""

    def __init__(self) -> None:
        self.says: dict[str, Any] = {}
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def run(self, host: Host, module: str, args: Sequence[str], on_output: Any = None) -> CommandResult:
        self.asked.append((host.name, (module, *args)))
        said = self.says.get(args[0], self.says["list"]).get(host.name, [])
        text = said if isinstance(said, bytes) else encode(said)
        if module == "jobs.logs":
            text = b"".join(encode(row) for row in [{"text": "hello\n", "file": "x", "offset": 6,
                            "rank": None}, *(said if isinstance(said, list) else []), {"end": True}])  # fmt: skip
            on_output("stdout", text)
        return CommandResult(host.name, tuple(args), Outcome.RAN, 0, text.decode("utf-8", "surrogateescape"), "", 0.1)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Fleet:
    made = Fleet()

    def payload(_: object, host: Host, module: str, args: Sequence[str], **more: Any) -> CommandResult:
        return made.run(host, module, args, more.get("on_output"))

    for place in ("nodes", "follow"):
        monkeypatch.setattr(f"nodectl.jobs.{place}.run_payload", payload)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nodectl.cli.jobs._SETTLING_S", 0.0)
    made.says["list"] = {name: [told(place)] for place, name in enumerate("abc")}
    return made


def cli(*words: str) -> Result:
    return CliRunner().invoke(nodectl, ["-i", "a,b,c,", "jobs", *words])


def sane(done: Result, status: int | None = None) -> str:
    """What was printed: without an error of ours, a control character, or what no terminal takes."""
    assert isinstance(done.exception, SystemExit | NodectlError | None), done.output[-2000:]
    assert status is None or done.exit_code == status, (done.exit_code, done.output[-2000:])
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", done.output), done.output[-2000:]
    done.output.encode()
    return done.output


DEEP = '{"a":' * 3000 + "1" + "}" * 3000
LACKING = object()
WRONG: dict[str, Any] = {
    "missing": LACKING, "null": None, "text": "\x1b[2J\x9b\u202e\nx\r", "object": {"é\x1b": 1},
    "lone": "\ud800x",
}  # fmt: skip


def mutations(value: Any) -> Iterator[Callable[[Any], Any]]:
    """Each gives a document in which one value is `wrong`."""

    def put(key: Any, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def changed(wrong: Any) -> Any:
            inner = change(wrong)
            if isinstance(value, list):
                return [inner if place == key else each for place, each in enumerate(value) if inner is not LACKING]
            return {
                name: inner if name == key else each
                for name, each in value.items()
                if inner is not LACKING or name != key
            }

        return changed

    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield put(key, lambda wrong: wrong)
        for change in mutations(value[key]):
            yield put(key, change)


@pytest.mark.parametrize("what", WRONG)
def test_no_value_of_one_hosts_answer_keeps_the_others_from_being_read(fleet: Fleet, what: str) -> None:
    from nodectl.jobs.listing import read_jobs
    from nodectl.report.jobs import conclusion, job_document, job_text, jobs_table, why_text

    changes = list(mutations(told(0)))
    assert len(changes) > 100
    hosts = [Host(name, name) for name in "abc"]
    for change in changes[:: 1 if what in ("missing", "text") else 3]:
        fleet.says["list"]["a"] = [change(WRONG[what])]
        found = read_jobs(None, hosts, 1)  # type: ignore[arg-type]
        (job,) = (job for job in found.jobs if job.id == JOB)
        assert {part.host for part in job.parts} >= {"b", "c"}
        for text in (job_text(job), why_text(job), jobs_table([job]), conclusion(job)):
            assert "b" in text
        json.dumps(job_document(job))
        assert all(text.startswith("sent an unreadable answer: ") for text in found.unreachable.values())
        assert set(found.unreachable) <= {"a"}


@pytest.mark.parametrize(("key", "what"), [("state", "missing"), ("plan", "text"), ("id", "lone")])
def test_every_command_works_with_a_host_whose_answer_is_unreadable(fleet: Fleet, what: str, key: str) -> None:
    row = told(0)
    fleet.says["list"]["a"] = [{name: WRONG[what] if name == key else each for name, each in row.items()
                                if name != key or what != "missing"}]  # fmt: skip
    for words in (["list"], ["show", JOB], ["why", JOB], ["logs", JOB], ["stop", JOB]):
        shown = sane(cli(*words), 3)
        assert "a: sent an unreadable answer: " in shown, words
    assert {host for host, words in fleet.asked if words[1] == "stop"} == {"a", "b", "c"}


@pytest.mark.parametrize("answer", [
        encode("x" * (10 << 20)),
        b"nodectl-frame/1 9999 [",
        b"nodectl-frame/1 %d %s\n" % (len(DEEP), DEEP.encode()),
    ])  # fmt: skip
def test_an_answer_of_another_form_is_its_hosts_alone(fleet: Fleet, answer: bytes) -> None:
    fleet.says["list"]["a"] = answer
    for words in (["list"], ["why", JOB], ["stop", JOB]):
        assert "a: " in sane(cli(*words), 3)


def test_control_characters_of_a_sane_answer_are_spelled_out_and_lines_stay_lines(fleet: Fleet) -> None:
    evil = "x\x1b[2J\u202e\n20261124-040000-cd34  running  you"
    for place, name in enumerate("abc"):
        row = told(place)
        row["plan"] |= {"script": evil, "operator": evil, "args": [evil, "\ud800"]}
        fleet.says["list"][name] = [row]
    shown = sane(cli("list"), 0)
    assert [line for line in shown.splitlines() if line.startswith("2026")] == shown.splitlines()[-1:]
    sane(cli("show", JOB), 0)
