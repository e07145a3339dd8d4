"""Cause or echo: what the ends of ranks mean. Texts as torch 2.13 with gloo wrote them."""

from typing import Any

import pytest

from nodectl.payload.jobs.classify import Evidence, judge, torchrun_exit
from nodectl.payload.jobs.failures import first

USER_ERROR = """[rank2]: Traceback (most recent call last):
[rank2]:   File "/root/code/ddp.py", line 7, in <module>
[rank2]:     if r == 2: raise ValueError('bad sample in shard 7')
[rank2]:                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
[rank2]: ValueError: bad sample in shard 7
terminate called without an active exception
"""
ECHO = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
[rank1]:     work.wait()
[rank1]: RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.0.1]:9857.
"""
WATCHDOG = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  NCCL watchdog\n"
TORCHRUN = (
    "E1121 04:29:37.073000 2 torch/…/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 10) of binary: python3"
)


@pytest.mark.parametrize(
    ("code", "stderr", "after_another", "kind"),
    [
        (-9, "", False, "signal"),
        (-9, ECHO, True, "signal"),
        (-15, "", True, "terminated"),
        (1, USER_ERROR, False, "exception"),
        (-6, USER_ERROR, False, "exception"),
        (1, ECHO, False, "communication"),
        (-6, WATCHDOG, False, "communication"),
        (-6, "NCCL watchdog thread terminated with exception: CUDA error: illegal access", False, "signal"),
        (-6, "free(): invalid pointer", False, "signal"),
        (9, "", False, "exit"),
    ],
)
def test_kinds(code: Any, stderr: Any, after_another: Any, kind: Any) -> None:
    assert judge(Evidence(code=code, log=stderr, after_another=after_another)).kind == kind


def test_what_the_launcher_says_of_a_rank_that_it_reaped_first() -> None:
    assert torchrun_exit(TORCHRUN, 1) == -9
    assert torchrun_exit(TORCHRUN, 0) is None


def test_a_rank_that_its_launcher_ended_is_no_cause_beside_one_that_failed() -> None:
    def failure(kind: str, exit_status: int | None, time: float) -> dict[str, object]:
        return {"kind": kind, "exit_status": exit_status, "time": time}

    ended, raised = failure("signal", 143, 1.0), failure("exception", 1, 2.0)
    killed, echo = failure("signal", 137, 3.0), failure("communication", 1, 0.5)
    assert first([ended, raised]) == raised
    assert first([ended, raised, killed]) == raised
    assert first([ended, echo]) == ended


@pytest.mark.parametrize(
    ("full", "category"), [(("/root/.local/state/nodectl/jobs/a",), "disk_full"), ((), "hardware_io")]
)
def test_a_disk_without_room_even_for_the_ranks_own_note_is_told_from_its_log(
    full: tuple[str, ...], category: str
) -> None:
    words = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 1344 vs 1240"
    log = (
        f'[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in main\n[rank0]: {words}\n'
    )
    verdict = judge(Evidence(code=1, full=full, log=log))
    assert (verdict.kind, verdict.category, verdict.message) == ("exception", category, words)
