"""Following output: long lines whole, many lines without loss, the end of a huge file at once, memory bounded."""

from __future__ import annotations

import hashlib
import io
import json
import queue
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.follow import Line, Noise, Start, Trouble, _collect, _Sign, follow
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.jobs.logs import line_starts
from nodectl.transport.base import OnOutput

JOB = "20261122-120000-ab12"


class Local:
    """Runs on this machine, with a state folder for each host; the hosts of `gone` do not answer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gone: set[str] = set()

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        if host.name in self.gone:
            return CommandResult(host.name, tuple(argv), Outcome.UNREACHABLE, None, "", "", 0.1, "no route")
        inside = ["env", f"XDG_STATE_HOME={self.root / host.name}", *argv]
        with subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin and process.stdout and process.stderr
            process.stdin.write(stdin or b"")
            process.stdin.close()
            said = b""
            while data := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                if on_output:
                    on_output("stdout", data)
                else:
                    said += data
            errors = process.stderr.read()
        if on_output:
            on_output("stderr", errors)
            errors = b""
        status = process.returncode
        return CommandResult(host.name, tuple(argv), Outcome.RAN, status, said.decode(), errors.decode(), 0.1)

    def close(self) -> None:
        return


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path)


def wrote(local: Local, host: str, output: bytes) -> Path:
    """A job that has ended on this host, with its output."""
    folder = local.root / host / "nodectl" / "jobs" / JOB
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"version": 1}))
    (folder / "state.json").write_text(json.dumps({"state": "finished", "final": True}))
    (folder / "output.log").write_bytes(output)
    return folder / "output.log"


def lines_of(local: Local, *hosts: str, start: Start | None = None) -> dict[str, list[str]]:
    """Lines by host."""
    lines: dict[str, list[str]] = {host: [] for host in hosts}
    for event in follow(local, [Host(host, host) for host in hosts], JOB, start=start, once=True):
        assert isinstance(event, Line), event
        lines[event.host].append(event.text)
    return lines


def test_many_lines_of_two_hosts_arrive_whole(local: Local) -> None:
    long = "ä€😀" * 100_000
    wrote(local, "a", f"first\n{long}\nlast, unfinished".encode())
    wrote(local, "b", b"".join(b"line %d\n" % number for number in range(200_000)))
    found = lines_of(local, "a", "b")
    assert [hashlib.sha256(line.encode()).hexdigest() for line in found["a"]] == [
        hashlib.sha256(line.encode()).hexdigest() for line in ("first", long, "last, unfinished")
    ]
    assert found["b"] == [f"line {number}" for number in range(200_000)]


def test_only_one_rank_is_shown(local: Local) -> None:
    text = "".join(f"[default{number % 3}]:step {number}\n" for number in range(30_000))
    wrote(local, "a", f"agent\n{text}[default2]:{'x' * 600_000}\n[default1]:{'y' * 600_000}\n".encode())
    steps = [f"[default1]:step {number}" for number in range(1, 30_000, 3)]
    found = lines_of(local, "a", start=Start(local_rank=1))["a"]
    assert found == [*steps, f"[default1]:{'y' * 600_000}"]
    assert lines_of(local, "a", start=Start(tail=3, local_rank=1))["a"] == found[-3:]


@pytest.mark.parametrize("size", [1, 100, 300_000])
@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_lines_are_found_from_the_end(size: int, end: str) -> None:
    lines = [str(number) * size for number in range(5)]
    file = io.BytesIO(("\n".join(lines) + end).encode())
    for count, offset in enumerate(line_starts(file, lambda _: True), start=1):
        assert file.getvalue()[offset:].decode() == "\n".join(lines[-count:]) + end
    assert count == len(lines)


def test_when_no_host_answers_any_more_it_ends_and_says_so(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodectl.jobs.follow._ALL_SILENT_S", 1.0)
    monkeypatch.setattr("nodectl.jobs.follow._SILENT_S", 1.0)
    local.gone = {"a", "b"}
    began_s = time.monotonic()
    events = list(follow(local, [Host("a", "a"), Host("b", "b")], JOB))
    assert sorted((event.host, event.why) for event in events if isinstance(event, Trouble)) == [
        *(("a", "no route"), ("b", "no route")),
    ]
    assert time.monotonic() - began_s < 60


def test_who_stays_silent_when_the_others_have_ended_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodectl.jobs.follow._SILENT_S", 0.2)
    monkeypatch.setattr("nodectl.jobs.follow._LAST_CHANCE_S", 0.2)
    messages: queue.Queue[Any] = queue.Queue()
    messages.put(_Sign("a", ended=True))
    assert list(_collect(messages, ["a", "b"], 60.0)) == [Trouble("b", "silent for 0.2 s")]


AT = "E1124 21:44:03.878000 25726 torch/distributed/elastic/agent/server/api.py:1008]"
LINES = f"""\
[W1124 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3
step 1
{AT} Error waiting on exit barrier. Elapsed: 1.2 seconds
{AT} Traceback (most recent call last):
{AT} RuntimeError: Connection reset by peer
E1124 21:44:04.000000 25726 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1)
{AT} RuntimeError: of another record
Traceback (most recent call last):
[W1124 socket.cpp:207] [c10d] The client socket has failed to connect to node01. err=-3"""


def test_only_what_is_no_error_is_held_back() -> None:
    noise = Noise()
    shown = [line for line in LINES.splitlines() if not noise.holds("node01 None", line)]
    assert [line[:24] for line in shown] == [
        *("step 1", "E1124 21:44:04.000000 25", "E1124 21:44:03.878000 25", "Traceback (most recent c"),
        "[W1124 socket.cpp:207] [",
    ]
