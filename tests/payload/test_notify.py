"""Notifications: what each form is sent, what is tried again, in which order, and that no secret is told."""

from __future__ import annotations

import email
import email.policy
import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs.folder import write_atomic
from nodectl.payload.notify import deliver as delivering
from nodectl.payload.notify import queue as queueing
from nodectl.payload.notify import send as sending
from nodectl.payload.notify.deliver import Command, Request, compose, deliver
from nodectl.payload.notify.queue import Queue
from nodectl.payload.notify.send import pause_s
from tests.payload.receiver import answers, closes, hangs, receiver

EVENT = {"id": "job-1-job-end-1", "event": "job-end", "title": "job <1> & more", "text": "it <!channel> failed"}
SECRET = "s3cr3t-0123456789"  # noqa: S105 - planted


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def wait(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    ends_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends_s, "it did not come true"
        time.sleep(0.05)


def opened(path: Path, *receivers: dict[str, Any]) -> Queue:
    queue = Queue(str(path / "notify"))
    queue.open({"fleet": "lab", "receivers": [{"on": ["job-end"], "form": "json", **one} for one in receivers]})
    return queue


def put(queue: Queue, *numbers: int) -> None:
    for number in numbers:
        for name in queue.put("job-end", f"e{number}", "title", "text"):
            queue.start(name)


def test_ntfy_is_told_in_json_at_its_root_and_by_an_id_of_the_message() -> None:
    sent = compose({"form": "ntfy", "url": "https://ntfy.sh/my-topic", "token": SECRET}, EVENT)
    assert isinstance(sent, Request) and (sent.method, sent.url) == ("POST", "https://ntfy.sh")
    assert sent.headers["Authorization"] == f"Bearer {SECRET}"
    body = json.loads(sent.body)
    assert (body["topic"], body["sequence_id"]) == ("my-topic", EVENT["id"])


def test_slack_gets_its_own_signs_escaped() -> None:
    sent = compose({"form": "slack", "url": "https://hooks.slack.com/services/x"}, EVENT)
    assert isinstance(sent, Request)
    assert json.loads(sent.body) == {"text": "*job &lt;1&gt; &amp; more*\nit &lt;!channel&gt; failed"}


def test_matrix_gets_a_transaction_in_the_address() -> None:
    told = {"form": "matrix", "url": "https://m.example/", "room": "!a/b:m.example", "token": SECRET}
    sent = compose(told, EVENT)
    assert isinstance(sent, Request) and sent.method == "PUT"
    place = f"/_matrix/client/v3/rooms/%21a%2Fb%3Am.example/send/m.room.message/{EVENT['id']}"
    assert sent.url == f"https://m.example{place}" and SECRET not in sent.url
    assert json.loads(sent.body)["msgtype"] == "m.text"


def test_mail_has_no_header_of_the_text_s_making() -> None:
    told = {"form": "mail", "to": ["a@example.org", "b@example.org"], "from": "n@example.org"}
    sent = compose(told, {**EVENT, "title": "böse", "text": "Bcc: x@example.org\n.\nend"})
    assert isinstance(sent, Command) and sent.argv == ["sendmail", "-t", "-i"]
    mail = email.message_from_bytes(sent.stdin, policy=email.policy.default)
    assert mail["Subject"] == "böse" and mail["To"] == "a@example.org, b@example.org" and mail["Bcc"] is None
    with pytest.raises(ValueError, match="Header"):
        compose(told, {**EVENT, "title": "a\nBcc: x@example.org"})


def test_a_title_is_one_line_wherever_it_comes_from(tmp_path: Path) -> None:
    queue = opened(tmp_path, {"name": "a", "url": "http://127.0.0.1:9"})
    queue.put("job-end", "e1", "a\nBcc: x\x1b[31m", "b\r\nc")
    (name,) = queue.waiting("a")
    event = queue.read("a", name)["event"]
    assert (event["title"], event["text"]) == ("a Bcc: x [31m", "b c")
    assert Path(queue.at("receivers.json")).stat().st_mode & 0o777 == 0o600


def test_what_went_wrong_once_is_tried_again_and_the_order_stays(tmp_path: Path) -> None:
    with receiver(answers(500), closes, answers(429, Retry_After="2")) as server:
        queue = opened(tmp_path, {"name": "a", "url": server.url})
        put(queue, 1, 2, 3)
        wait(lambda: not queue.waiting("a"))
        assert server.ids() == ["e1", "e2", "e3"]
        assert [body["id"] for *_, body in server.seen] == ["e1", "e1", "e1", "e1", "e2", "e3"]
        assert server.at[3] - server.at[2] >= 2.0
        assert {headers["Idempotency-Key"] for _, _, headers, body in server.seen if body["id"] == "e1"} == {"e1"}


def test_what_is_refused_is_put_aside_and_the_next_goes_on(tmp_path: Path) -> None:
    with receiver(answers(403), answers(307, Location="http://127.0.0.1:9/elsewhere")) as server:
        queue = opened(tmp_path, {"name": "a", "url": server.url, "token": SECRET})
        put(queue, 1, 2, 3)
        wait(lambda: not queue.waiting("a"))
        assert server.ids() == ["e3"] and len(server.seen) == 3
    refused = queue.pending()
    assert [(row["id"], row["waits"], row["why"][:3]) for row in refused] == [
        ("e1", False, "403"),
        ("e2", False, "307"),
    ]
    assert SECRET not in json.dumps(refused)


def test_a_receiver_that_is_down_delays_no_other_and_gets_all_once_it_is_up(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with receiver() as up:
        queue = opened(
            tmp_path, {"name": "a", "url": f"http://127.0.0.1:{port}/{SECRET}"}, {"name": "b", "url": up.url}
        )
        put(queue, 1, 2)
        wait(lambda: up.ids() == ["e1", "e2"])
    assert len(queue.waiting("a")) == 2
    wait(lambda: any(row["tries"] for row in queue.pending()))
    assert "refused" in queue.pending()[0]["why"] and SECRET not in json.dumps(queue.pending())
    with receiver(port=port) as late:
        wait(lambda: not queue.waiting("a"))
        assert late.ids() == ["e1", "e2"]


def test_a_killed_sender_loses_nothing(tmp_path: Path) -> None:
    with receiver(answers(503)) as server:
        queue = opened(tmp_path, {"name": "a", "url": server.url})
        queue.put("job-end", "e1", "title", "text")
        sender = queue.start("a")
        wait(lambda: len(server.seen) == 1)
        os.kill(sender, signal.SIGKILL)
        os.waitpid(sender, 0)
        assert len(queue.waiting("a")) == 1
        os.waitpid(queue.start("a"), 0)
        assert server.ids() == ["e1"] and not queue.waiting("a")


def test_many_senders_send_once(tmp_path: Path) -> None:
    with receiver() as server:
        queue = opened(tmp_path, {"name": "a", "url": server.url})
        for number in range(5):
            queue.put("job-end", f"e{number}", "title", "text")
        for pid in [queue.start("a") for _ in range(5)]:
            os.waitpid(pid, 0)
        assert server.ids() == [f"e{number}" for number in range(5)]


def test_a_sender_ends_with_its_queue_and_its_secrets_with_the_last_message(tmp_path: Path) -> None:
    queue = opened(tmp_path, {"name": "a", "url": "http://127.0.0.1:9"})
    queue.put("job-end", "e1", "title", "text")
    sender = queue.start("a")
    wait(lambda: bool(queue.pending()[0]["tries"]))
    Path(queue.path).rename(tmp_path / "gone")
    wait(lambda: os.waitpid(sender, os.WNOHANG)[0] == sender)


def test_an_answer_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "TRY_S", 1.5)
    with receiver(hangs(20)) as server:
        begun = time.monotonic()
        outcome = deliver({"form": "json", "url": server.url}, EVENT)
        assert not outcome.delivered and outcome.again and time.monotonic() - begun < 5


def test_a_full_disk_has_room_for_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = opened(tmp_path, {"name": "a", "url": "http://127.0.0.1:9"})
    write = write_atomic

    def full(path: str, data: bytes) -> None:
        if Path(queue.at("spare")).exists():
            raise OSError(errno.ENOSPC, "full")
        write(path, data)

    monkeypatch.setattr(queueing, "write_atomic", full)
    queue.open(queue.settings())
    queue.put("job-end", "e1", "title", "text")
    assert len(queue.waiting("a")) == 1


def test_a_command_gets_the_event_and_is_ended_where_it_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = tmp_path / "got"
    tell = [sys.executable, "-c", f"import sys; open({str(got)!r}, 'w').write(sys.stdin.read())"]
    assert deliver({"form": "command", "argv": tell}, EVENT).delivered
    assert json.loads(got.read_text()) == EVENT
    assert deliver({"form": "command", "argv": ["/nowhere/page"]}, EVENT) == (
        False,
        "/nowhere/page: no such program",
        False,
        0.0,
    )
    assert deliver({"form": "command", "argv": [sys.executable, "-c", "exit(75)"]}, EVENT).again
    monkeypatch.setattr(delivering, "TRY_S", 0.5)
    begun = time.monotonic()
    assert not deliver({"form": "command", "argv": ["sleep", "60"]}, EVENT).delivered
    assert time.monotonic() - begun < 10


def test_pauses_grow_have_chance_in_them_and_obey_the_receiver() -> None:
    asked = delivering.Outcome(False, "", after_s=500.0)
    plain = delivering.Outcome(False)
    assert 0.5 <= pause_s(1, plain) <= 1.0 and 30 <= pause_s(50, plain) <= 60
    assert pause_s(1, asked) == 500.0
    assert len({pause_s(5, plain) for _ in range(10)}) > 1


@pytest.mark.parametrize(
    ("asked", "least_s", "most_s"),
    [("7", 7, 7), ("Fri, 01 Jan 2100 00:00:00 GMT", 86400, 1e10), ("\xb2", 0, 0), ("Wed, 1 Oct 99999", 0, 0)],
)
def test_a_receiver_asks_for_a_pause_by_seconds_or_by_a_date(asked: str, least_s: float, most_s: float) -> None:
    with receiver(answers(503, Retry_After=asked)) as server:
        outcome = deliver({"name": "a", "form": "json", "url": server.url}, EVENT)
    assert outcome.again and least_s <= outcome.after_s <= most_s


def test_what_cannot_be_sent_is_put_aside_and_the_next_goes_on(tmp_path: Path) -> None:
    told: dict[str, Any] = {"name": "a", "form": "mail", "to": ["?!@[\\"], "sendmail": "true"}
    queue = opened(tmp_path, told)
    put(queue, 1)
    wait(lambda: bool(queue.pending()) and not queue.waiting("a"))
    assert queue.pending()[0]["why"]
    queue.open({"fleet": "lab", "receivers": [{"on": ["job-end"], **told, "to": ["a@b.example"]}]})
    put(queue, 2)
    wait(lambda: [row["id"] for row in queue.pending()] == ["e1"] and not queue.waiting("a"))


def test_messages_keep_their_order_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = opened(tmp_path, {"name": "a", "url": "http://127.0.0.1:1"})
    for number, at_ns in enumerate((10**18, 10**18 - 3600 * 10**9, 10**18 + 1)):
        monkeypatch.setattr(time, "time_ns", lambda at_ns=at_ns: at_ns)
        queue.put("job-end", f"e{number}", "title", "text")
    assert [row["id"] for row in queue.pending()] == ["e0", "e1", "e2"]


def test_a_clock_that_jumps_by_days_gives_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(answers(503), answers(503)) as server:
        queue = opened(tmp_path, {"name": "a", "url": server.url})
        queue.put("job-end", "e1", "title", "text")
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 5 * 86400)
        monkeypatch.setattr(sending, "_FIRST_S", 0.01)
        monkeypatch.setattr(os, "setsid", lambda: None)
        monkeypatch.setattr(os, "umask", lambda _: 0)
        assert sending.main([queue.path, "a"]) == 0
        assert server.ids() == ["e1"] and queue.pending() == []
