"""The first cause over all hosts: its order, ranks that left or did not come, rivals, and the classes of exceptions."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.jobs.calls import read
from nodectl.jobs.cause import HostWords, failures_of
from nodectl.jobs.remedies import Advice, advice, classes, remedy_of
from nodectl.model.job import Failure
from nodectl.payload.jobs.classify import Evidence, judge
from nodectl.payload.jobs.rules import AMONG_RANKS, RULES, Rule, category_of, of_text

GLOO = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.1.0.2]:9857."
LATE = "RuntimeError: [/pytorch/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"


def failure(kind: str, time: float, rank: int, message: str = "", status: int = 1, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "class": kind, "message": message, "rank": rank, "exit_status": status, "time": time, **more}


def host(place: int, *failures: dict[str, Any], **state: Any) -> HostWords:
    return HostWords(f"gpu0{place + 1}", place, {"failures": list(failures), **state})


@pytest.mark.parametrize(
    ("first_knows", "second_knows", "rank", "unknown"),
    [([], [0], 0, False), ([1], [], 1, False), ([], [], 1, True)],
    ids=["the second heard of the first", "the first heard of the second", "neither heard of the other"],
)
def test_a_cause_is_later_than_those_that_its_host_had_heard(
    first_knows: list[int], second_knows: list[int], rank: int, unknown: bool
) -> None:
    """The first host's clock is 4 s ahead."""
    one = failure("exception", 104.0, 0, "ValueError: a", after=first_knows)
    other = failure("exception", 100.0, 1, "KeyError: b", after=second_knows)
    found = failures_of([host(0, one), host(1, other)], [])[0]
    assert found.rank == rank
    assert any(line.startswith("order unknown: host gpu0") for line in found.evidence) is unknown


def living(rank: int, *stack: str, state: str = "S") -> dict[str, Any]:
    return {"rank": rank, "state": state, "stack": list(stack)}


def test_a_rank_whose_collective_broke_and_that_was_seen_leaving_did_not_stay_away() -> None:
    aborted = failure("communication", 100.0, 1, LATE, 134) | {"class": "collective_timeout"}
    broken = host(
        0,
        failure("communication", 100.1, 0, GLOO),
        living=[living(0, "/v/lib/python3.11/site-packages/torch/library.py:665 _del_library")],
    )
    first = failures_of([broken, host(1, aborted)], [])[0]
    assert (first.host, first.rank, first.category) == ("gpu02", 1, "collective_timeout")


PAIR, ALL = [0, 1], [0, 1, 2]


def waited(rank: int, message: str = LATE, category: str = "collective_timeout", **groups: Any) -> dict[str, Any]:
    records = {name[1:]: group for name, group in groups.items()}
    return failure("communication", 100.0 + rank, rank, message, flight=records) | {"class": category}


def called(
    number: int, members: list[int], name: str = "gloo:all_reduce", size: int = 4, **more: Any
) -> dict[str, Any]:
    call = {"collective": name, "number": number, "sizes": f"[[{size}]]", "types": "Float"}
    return {**call, "members": members, "pending": call, **more}


IN_ALL_REDUCE = "/v/site-packages/torch/distributed/distributed_c10d.py:3252 all_reduce"
NO_PEER = "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/2"
BROADCAST = called(6, ALL, "gloo:broadcast")
GONE_ON = called(7, ALL, recent=[{**BROADCAST["pending"]}])


@pytest.mark.parametrize(
    ("words", "rank", "category", "says"),
    [
        ([host(0, waited(0, GLOO)), host(1, ends=[{"rank": 1, "code": 0, "time": 101.0}])], 1, "left_early", "waited"),
        ([host(0, waited(0)), host(1, living=[living(1, "/job/code/data.py:33 load")]),
          host(2, living=[living(2, IN_ALL_REDUCE)])], 1, "collective_timeout", "/job/code/data.py:33 load"),
        ([host(0, waited(0)), host(1, living=[living(1, state="T")])], 1, "stopped", ""),
        ([host(rank, waited(rank, g0=called(6 if rank == 1 else 7, ALL))) for rank in ALL],
         1, "collective_timeout", "came to gloo:all_reduce number 6 only"),
        ([host(rank, waited(rank, g0=called(3, ALL, size=12 if rank == 1 else 8))) for rank in ALL],
         1, "collective_mismatch", "[[12]]"),
        ([host(0, waited(0, g1=called(1, PAIR))), host(1, waited(1, g2=called(1, PAIR)))],
         None, "collective_mismatch", "ranks 0, 1 wait for each other"),
        ([host(rank, waited(rank, g0=GONE_ON if rank == 1 else BROADCAST)) for rank in ALL],
         None, "collective_timeout", "gloo:broadcast number 6, to which all ranks"),
        ([*(host(rank, waited(rank, NO_PEER, "rendezvous")) for rank in PAIR),
          host(2, ends=[{"rank": 2, "code": 143}])], 2, "rendezvous", "did not come to the store"),
    ],
    ids=["left", "elsewhere", "stopped", "behind", "sizes", "two groups", "another root", "store"],
)  # fmt: skip
def test_the_rank_for_which_the_others_waited_is_named(
    words: list[HostWords], rank: int | None, category: str, says: str
) -> None:
    """`test_deaths.py` makes each for real."""
    first = failures_of(words, [])[0]
    assert (first.rank, first.category) == (rank, category)
    assert says in first.message and first.remedy


@pytest.mark.parametrize(("later_s", "rank"), [(0.3, 1), (60.0, 2)])
def test_an_abort_by_a_time_out_comes_before_the_connections_that_it_broke(later_s: float, rank: int) -> None:
    aborted = failure("communication", 100.0 + later_s, 1, LATE, 134) | {"class": "collective_timeout"}
    first = failures_of([host(1, aborted), host(2, failure("communication", 100.0, 2, GLOO))], [])[0]
    assert first.rank == rank


def test_calls_of_different_groups_are_not_compared() -> None:
    even, odd = {"1": called(5, [0, 2])}, {"2": called(2, [1, 3], size=9)}
    rows = {0: even, 1: odd, 2: even, 3: odd}
    known = read(rows)
    assert (known.unlike(), known.circle, known.behind) == ((), (), ())


@pytest.mark.parametrize(
    ("name", "is_compared"),
    [
        ("gloo:all_reduce", True),
        ("nccl:all_gather", False),
        ("gloo:gather", False),
    ],
)
def test_sizes_are_compared_where_ranks_must_hand_over_as_much(name: str, is_compared: bool) -> None:
    rows = {rank: {"0": {**called(3, PAIR, name, 8 + rank)}} for rank in PAIR}
    for row in rows.values():
        del row["0"]["pending"]
    assert bool(read(rows).unlike()) is is_compared


# as faulthandler of Python 3.11 wrote it, of a thread of torch that was left when a script had ended
WOUND_DOWN = "Fatal Python error: Aborted\n\nThread 0x00007f1d0985c040 (most recent call first):\n  <no Python frame>\n"


def test_a_script_that_ended_and_was_aborted_at_its_exit() -> None:
    verdict = judge(Evidence(code=-6, stack=WOUND_DOWN, log="terminate called without an active exception\n"))
    assert (verdict.kind, verdict.category) == ("signal", "abort_at_exit")
    assert "its script had ended" in verdict.evidence[1]
    aborted = failure("signal", 100.5, 1, verdict.message, 134) | {"class": verdict.category}
    alone = failures_of([host(1, aborted), host(0)], [])[0]
    assert (alone.category, "destroy_process_group" in alone.remedy) == ("abort_at_exit", True)


def test_an_xid_explains_ranks_that_waited_in_vain() -> None:
    late = failure("communication", 100.0, 0, LATE) | {"class": "collective_timeout"}
    line = "NVRM: Xid (PCI:0000:10:1c): 79, pid=77, name=python, GPU has fallen off the bus."
    first = failures_of([host(0, late), host(1, xids=[line])], [])[0]
    assert (first.host, first.category) == ("gpu02", "xid")
    assert first.remedy.startswith("Xid 79")


# as Python 3.11 left it of a rank whose DataLoader's worker crashed while a batch was handed over
HELPER = [
    ["/v/site-packages/torch/multiprocessing/reductions.py", 541, "rebuild_storage_fd"],
    ["/usr/lib/python3.11/multiprocessing/resource_sharer.py", 57, "detach"],
    ["/usr/lib/python3.11/multiprocessing/connection.py", 399, "_recv"],
]


def link(kind: str, message: str = "", role: str = "raised", **more: Any) -> dict[str, Any]:
    return {"type": kind, "message": f"{kind}: {message}", "role": role, **more}


@pytest.mark.parametrize("rule", [*AMONG_RANKS, *RULES], ids=lambda rule: f"{rule.category}: {rule.example[:30]}")
def test_each_rule_decides_its_example_and_has_a_remedy(rule: Rule) -> None:
    assert of_text(rule.example) == rule.category
    assert classes()[rule.category]["remedy"]


@pytest.mark.parametrize(
    ("chain", "category"),
    [
        ([link("ValueError", "x")], "script_error"),
        ([link("RuntimeError", "failed"), link("FileNotFoundError", "y", "cause", errno=2)], "data_missing"),
        ([link("ImportError", "no x"), link("FileNotFoundError", "y", "context", errno=2)], "import_error"),
        ([link("ValueError", 'unknown policy "No space left on device" in retry_on')], "script_error"),
        ([link("RuntimeError", "save failed"), link("RuntimeError", GLOO, "context")], "communication"),
        ([link("ConnectionResetError", "Connection reset", frames=[["/x/torch/distributed/a.py"]])], "communication"),
        ([link("torch.distributed.DistBackendError", "ncclRemoteError: remote process exited")], "communication"),
        ([link("RuntimeError", LATE)], "collective_timeout"),
        ([link("EOFError", frames=HELPER)], "helper_killed"),
        ([link("EOFError", frames=[*HELPER, ["/job/code/data.py", 3, "load"], ["/job/code/a.py", 4, "read"]])],
         "data_damaged"),
        ([link("OSError", "libcudnn_ops.so.8: cannot open shared object file: No such file or directory")],
         "import_error"),
        ([link("torch.AcceleratorError", "CUDA error: invalid device ordinal")], "gpu_missing"),
        ([link("ssl.SSLError", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", errno=1)],
         "download_failed"),
        ([link("ConnectionResetError", "[Errno 104] Connection reset", errno=104, frames=[["/c/t.py", 1, "x"]])],
         "download_failed"),
        ([link("Exception", "Current loss scale already at minimum - cannot decrease scale")], "not_a_number"),
    ],
)  # fmt: skip
def test_classes_of_chains_of_exceptions(chain: Any, category: str) -> None:
    assert category_of(chain) == category


@pytest.mark.parametrize("row", advice(), ids=lambda row: row.example[:40])
def test_each_special_advice_is_given_for_its_example_alone(row: Advice) -> None:
    category = next(iter(row.classes), "data_missing")
    rank = None if row.of_nobody else 0
    remedy = remedy_of(Failure("gpu01", rank, "exception", row.example, 1, category=category))
    plain = remedy_of(Failure("gpu01", 0, "exception", "x", 1, category=category))
    assert remedy and remedy != plain and "{" not in remedy.replace("{stack: {packages: {", "")


@pytest.mark.parametrize(
    ("full", "category"),
    [(["/dev/shm"], "shared_memory_full"), (["/ckpt", "/dev/shm"], "disk_full"), ([], "disk_full")],
)
def test_what_only_dev_shm_has_no_room_for_is_told_of_it(full: list[str], category: str) -> None:
    assert category_of([link("OSError", "[Errno 28] No space left on device", errno=28)], full) == category


OMP = "step 7\n\nlibgomp: Thread creation failed: Resource temporarily unavailable\n"
HANDLED = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: handled\n'


@pytest.mark.parametrize(
    ("known", "kind", "category", "says"),
    [
        (Evidence(code=3, log=HANDLED, watched=True), "exit", "exit", "exit status 3"),
        (Evidence(code=3, log=HANDLED), "exit", "exit", "exit status 3"),
        (Evidence(code=1, log=HANDLED, watched=True), "exception", "script_error", "ValueError: handled"),
        (Evidence(code=1, log=OMP, watched=True), "exit", "limits", "Thread creation failed"),
        (Evidence(code=-9, other_kills="x"), "signal", "killed_from_outside", "SIGKILL"),
        (Evidence(code=-9, other_kills="x", killed_then=True), "signal", "host_out_of_memory", "perhaps"),
        (Evidence(code=2, log="usage: t.py\nt.py: error: unrecognized arguments: --x\n"), "exit", "bad_argument", "x"),
        (Evidence(code=-9), "signal", "killed_from_outside", "SIGKILL"),
        (Evidence(code=-9, memory_killer=("oom_kill went from 0 to 1",)), "signal", "host_out_of_memory", "killer"),
        (Evidence(code=-11), "signal", "crash", "SIGSEGV"),
        (Evidence(code=-13), "signal", "interrupted", "its reader had closed"),
        (Evidence(code=-24), "signal", "limits", "CPU time"),
        (Evidence(code=1, kernel=("log",), xid=True, note={"chain": [link("RuntimeError", "CUDA error: x")]}),
         "exception", "xid", "CUDA error"),
        (Evidence(code=-6, note={"chain": [link("KeyError", "x")]}), "exception", "script_error", "KeyError"),
    ],
)  # fmt: skip
def test_the_strongest_evidence_decides(known: Evidence, kind: str, category: str, says: str) -> None:
    verdict = judge(known)
    assert (verdict.kind, verdict.category) == (kind, category)
    assert says in verdict.message


@pytest.mark.parametrize(
    "after",
    [
        "",
        "[rank1]:[W1125 12:44:16.251552103 Utils.hpp:137] Warning: x is deprecated (function operator())\n",
        "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: 1 leaked\n  warnings.warn('x')\n",
    ],
)
def test_the_message_of_sys_exit_is_quoted_whatever_libraries_add_to_it(after: str) -> None:
    log = f"{HANDLED}no shards below /data: give --data\n{after}"
    verdict = judge(Evidence(code=1, log=log, watched=True, left=True))
    assert verdict.message == "exit status 1"
    assert "its last words: no shards below /data: give --data (log text only)" in verdict.evidence
    assert any("a traceback that did not end it: ValueError: handled" in line for line in verdict.evidence)


def test_a_time_limit_is_told_once_and_secrets_of_an_exception_are_starred() -> None:
    over = {**failure("time_limit", 100.0, 0, message="its time limit of 9 s is over"), "rank": None}
    (only,) = failures_of([host(0, over), host(1, {**over, "time": 100.01})], [])
    assert not any("order unknown" in line for line in only.evidence)
    raised = failure(
        "exception", 100.0, 0, "OSError: https://me:s3cr3t@h/x?token=abcd1234", traceback='key = "hf_' + 12 * "a"
    )
    (shown,) = failures_of([host(0, {**raised, "evidence": ["password: hunter22"]})], [])
    assert not any(word in str(shown) for word in ("s3cr3t", "abcd1234", "hf_a", "hunter22")), shown
    assert "https://***@h/x?token=***" in shown.message


def test_where_a_remedy_names_the_job_it_names_this_one() -> None:
    (first,) = failures_of([host(0, failure("exit", 1.0, 0))], [], "20260101-000000-0001")
    assert first.remedy.endswith("--host gpu01 20260101-000000-0001`")
