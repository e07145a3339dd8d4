"""Job output: elastic's summary, the watchdog, the rendezvous."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.torchrun_log import (
    RendezvousTimeout,
    TorchrunFailure,
    WatchdogTimeout,
    parse_torchrun_log,
)
from tests.facts.parsers.tool_outputs import tool_output

OURS = "torch.distributed.elastic: started\n"
SUMMARY = """============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : {time}
  host      : {host}
  rank      : {rank} (local_rank: {local_rank})
  exitcode  : {exitcode} (pid: 77){signal}
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""


def summary(**changes: object) -> str:
    values = {
        "time": "2026-03-02_10:00:31",
        "host": "a",
        "rank": 3,
        "local_rank": 1,
        "exitcode": 1,
        "signal": "",
        "traceback": "none",
    }
    return SUMMARY.format(**{**values, **changes})


def test_every_value_of_a_summary() -> None:
    found = parse_torchrun_log(tool_output("torchrun-log", "killed.txt"))
    assert found.root_cause == TorchrunFailure(
        time="2026-03-02_10:00:31",
        host="node-a.cluster",
        rank=1,
        local_rank=1,
        exitcode=-9,
        signal="SIGKILL",
        error_file=None,
        traceback="Signal 9 (SIGKILL) received by PID 402",
        pid=402,
        unavailable={"error_file": "<N/A>"},
    )
    (other,) = found.others
    assert (other.host, other.rank, other.local_rank, other.exitcode, other.pid) == ("node-b.cluster", 12, 4, 1, 88005)
    assert (other.error_file, other.unavailable) == ("/tmp/torchelastic_x/none_y/attempt_0/4/error.json", {})
    assert other.traceback is not None
    assert other.traceback.splitlines()[0] == "Traceback (most recent call last):"
    assert other.traceback.splitlines()[-1].strip() == "torch.OutOfMemoryError: CUDA out of memory."
    assert (found.watchdog, found.rendezvous_timeout) == ((), None)


def test_every_value_of_the_watchdog() -> None:
    found = parse_torchrun_log(tool_output("torchrun-log", "watchdog.txt"))
    assert found.watchdog == (
        WatchdogTimeout(5, "ALLREDUCE", 81, 84, 80, 600000),
        WatchdogTimeout(2, None, 82, 83, 79, None),
    )
    assert found.rendezvous_timeout == RendezvousTimeout("10.0.0.9", 29501)
    assert (found.root_cause, found.others) == (None, ())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            (
                "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=12, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800200 milliseconds before timing"
            ),
            WatchdogTimeout(1, "BROADCAST", 12, None, None, 1800000),
        ),
        (
            (
                "[rank7]:[E419 ProcessGroupNCCL.cpp:607] [Rank 7] Timeout at NCCL work: 86, "
                "last enqueued NCCL work: 89, last completed NCCL work: 85."
            ),
            WatchdogTimeout(7, None, 86, 89, 85, None),
        ),
        (
            (
                "3: [PG 0 (default_pg) Rank 6] failure detected by watchdog at work sequence id: 5 PG status: "
                "last enqueued work: 7, last completed work: -1"
            ),
            WatchdogTimeout(6, None, 5, 7, -1, None),
        ),
    ],
)
def test_the_forms_of_the_watchdog(line: str, expected: WatchdogTimeout) -> None:
    assert parse_torchrun_log(f"step 4\n{line}\r\nstep 5\n").watchdog == (expected,)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("192.0.0.1:1234", RendezvousTimeout("192.0.0.1", 1234)),
        ("(IP1, 2222).", RendezvousTimeout("IP1", 2222)),
        ("[fe80::1]:29400", RendezvousTimeout("fe80::1", 29400)),
        ("node-a.cluster:29500.", RendezvousTimeout("node-a.cluster", 29500)),
    ],
)
def test_the_store_that_was_not_reached(where: str, expected: RendezvousTimeout) -> None:
    line = f"[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to {where}\n"
    assert parse_torchrun_log(line).rendezvous_timeout == expected


@pytest.mark.parametrize(
    ("exitcode", "printed", "traceback", "signal"),
    [
        (-9, "", "Signal 9 (SIGKILL) received by PID 77", "SIGKILL"),
        (-11, " (SIGSEGV)", "none", "SIGSEGV"),
        (-6, "", "none", "SIGABRT"),
        (-250, "", "none", None),
        (1, "", "none", None),
    ],
)
def test_the_signal_by_its_name(exitcode: int, printed: str, traceback: str, signal: str | None) -> None:
    root = parse_torchrun_log(summary(exitcode=exitcode, signal=printed, traceback=traceback)).root_cause
    assert root is not None
    assert (root.exitcode, root.signal) == (exitcode, signal)


def test_of_several_agents_the_earliest_root_cause_is_the_job_s() -> None:
    late, early = (
        summary(time="2026-03-02_10:00:40", host="late"),
        summary(time="2026-03-02_10:00:05", host="early", exitcode=-15),
    )
    found = parse_torchrun_log(late + "noise\n" + early + late)
    assert found.root_cause is not None
    assert found.root_cause.host == "early"
    assert [other.host for other in found.others] == ["late"]


def test_a_summary_that_ends_between_lines_has_nulls() -> None:
    root = parse_torchrun_log(summary().split("  exitcode")[0]).root_cause
    assert root is not None
    assert (root.rank, root.exitcode, root.traceback) == (3, None, None)


def test_a_job_that_ended_well_has_no_cause() -> None:
    found = parse_torchrun_log(
        "[2024-03-12 08:22:45,549] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS\nrank : fast\n"
    )
    assert (found.root_cause, found.others, found.watchdog, found.rendezvous_timeout) == (None, (), (), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("epoch 1 loss 2.3\n", "line 1: .*no line of torch.distributed"),
        (summary().split(" (local_rank")[0], "line 11: .*a rank that is cut"),
        (summary().replace(" (pid: 77)", " (pi"), "line 12: .*a exitcode that is cut"),
        (summary(host=""), "line 10: .*a host without its value"),
        (OURS + "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpTy", "line 2: .*cut"),
        (OURS + "[Rank 1] watchdog at work: 4486, last enqueued NCCL work: 44", "line 2: .*cut"),
        (
            OURS + "The client socket has timed out after 60s while trying to connect to 192.0",
            "line 2: .*without its host and port",
        ),
        (OURS + "The client socket has timed out after 60s while trying to connect to a:99999", "99999 is no port"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_torchrun_log(text)
