"""What a heartbeat proves, and when silence means that a host is lost."""

import pytest

from nodectl.payload.jobs.failures import brief
from nodectl.payload.jobs.heartbeat import (
    ENDING,
    RESTING,
    RUNNING,
    WAITING,
    Attempt,
    Beat,
    Peers,
    decode,
    encode,
)

KEY, JOB = b"k" * 32, "20261121-040000-ab12"


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u65e5", "\U0001f600", "\udc80", "\0"])
def test_a_failure_in_any_writing_is_heard_cut_where_it_is_too_long(character: str) -> None:
    texts = {"message": "bad " + character * 50_000, "evidence": [character * 9000] * 9, "more": character * 50_000}
    failure = {"kind": "exception", "class": "script_error", "rank": 3, "exit_status": 1, "time": 1.5, **texts}
    datagram = encode(KEY, JOB, Beat(2, 41, ENDING, brief(failure)))
    heard = decode(KEY, JOB, datagram)
    assert heard is not None and heard.failure is not None and len(datagram) <= 8192
    assert heard.failure["message"].startswith("bad " + character * 20)
    assert (heard.failure["rank"], heard.failure["kind"]) == (3, "exception")


def test_only_this_job_and_its_key_are_heard() -> None:
    datagram = encode(KEY, JOB, Beat(1, 1, RUNNING, None))
    assert decode(b"x" * 32, JOB, datagram) is None
    assert decode(KEY, "20261121-040000-cd34", datagram) is None
    assert decode(KEY, JOB, datagram[:-1] + b"!") is None
    assert decode(KEY, JOB, b"") is None
    assert decode(KEY, JOB, datagram + b" " * 10_000) is None


def test_a_replayed_or_overtaken_beat_does_not_renew_the_lease() -> None:
    peers = Peers([1], lease_s=8)
    assert peers.hear(Beat(1, 5, RUNNING, None), 0.0)
    assert not peers.hear(Beat(1, 5, RUNNING, None), 7.0)
    assert not peers.hear(Beat(1, 4, RUNNING, None), 7.0)
    assert peers.newly_lost(8.1) == [1]


def test_a_host_is_lost_once_and_only_after_its_lease() -> None:
    peers = Peers([1, 2], lease_s=8)
    peers.hear(Beat(1, 1, RUNNING, None), 0.0)
    peers.hear(Beat(2, 1, RUNNING, None), 4.0)
    assert peers.newly_lost(8.0) == []
    assert peers.newly_lost(8.5) == [1]
    assert peers.newly_lost(9.0) == []
    assert peers.newly_lost(12.5) == [2]


def test_what_a_host_said_of_an_attempt_counts_when_it_has_gone_on_to_the_next() -> None:
    first, second = Attempt(1, (0, 1)), Attempt(2, (0, 1))
    failure = {"kind": "signal", "rank": 3, "message": "killed", "exit_status": 137, "time": 1.5}
    peers = Peers([1], lease_s=8)
    peers.begin(first)
    peers.hear(Beat(1, 1, RESTING, failure, first), 0.0)
    peers.hear(Beat(1, 2, WAITING, None, second), 1.0)
    assert peers.failures == {1: failure}
    peers.begin(second)
    assert peers.failures == {}
    peers.hear(Beat(1, 3, RESTING, failure, second), 2.0)
    assert peers.failures == {1: failure}
