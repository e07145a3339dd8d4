"""The first cause over all hosts: clocks, ranks that left or did not come, rivals, and the classes of exceptions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from nodectl.common.private import NO_PROJECT
from nodectl.jobs.calls import read
from nodectl.jobs.cause import HostWords, compare, failures_of
from nodectl.jobs.remedies import Advice, advice, classes, remedy_of
from nodectl.model.job import Failure
from nodectl.payload.jobs.classify import Evidence, judge
from nodectl.payload.jobs.process import CpuTime
from nodectl.payload.jobs.rules import AMONG_RANKS, RULES, Rule, category_of, of_text

GLOO = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.1.0.2]:9857."
LATE = "RuntimeError: [/pytorch/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation"
IN_COLLECTIVE = [
    "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252 all_reduce",
    "/job/code/train.py:9 step",
]


def failure(kind: str, time: float, rank: int, message: str = "", status: int = 1, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "class": kind, "message": message, "rank": rank, "exit_status": status, "time": time, **more}


def host(place: int, *failures: dict[str, Any], **state: Any) -> HostWords:
    return HostWords(f"gpu0{place + 1}", place, {"failures": list(failures), **state})


def test_clocks_are_compared_by_what_each_saw_of_the_other() -> None:
    # the second host's clock leads by 5 s; ways take 0.1 s there and 0.3 s back
    clocks = compare({0: {"1": 0.1 - 5.0}, 1: {"0": 0.3 + 5.0}})
    lead, unsure = clocks.leads_s[1]
    assert (round(lead, 3), round(unsure, 3)) == (5.1, 0.2)
    assert round(clocks.correct(1, 105.1), 3) == 100.0


def test_the_first_is_the_first_in_one_time_not_by_each_hosts_clock() -> None:
    ahead = {"ways": {"0": 5.0002}}
    early = failure("exception", 104.0, 1, "ValueError: a")
    later = failure("exception", 100.0, 0, "ValueError: b")
    by_clock = failures_of([host(0, later), host(1, early)], [])
    assert by_clock[0].rank == 0
    corrected = failures_of([host(0, later, ways={"1": -4.9998}), host(1, early, **ahead)], [])
    assert (corrected[0].rank, corrected[0].host) == (1, "gpu02")


def test_two_causes_nearer_than_the_clocks_tell_are_both_named() -> None:
    one, other = failure("exception", 100.0, 0, "ValueError: a"), failure("exception", 100.2, 1, "KeyError: b")
    unsure = [host(0, one, ways={"1": 0.3}), host(1, other, ways={"0": 0.3})]
    assert any("may have been first: KeyError: b" in line for line in failures_of(unsure, [])[0].evidence)
    launchers = [host(n, {**each, "rank": None}, ways={str(1 - n): 0.3}) for n, each in enumerate((one, other))]
    assert any(line.startswith("host gpu02 failed within") for line in failures_of(launchers, [])[0].evidence)
    sure = [host(0, one, ways={"1": 0.01}), host(1, other, ways={"0": 0.01})]
    assert not any("may have been first" in line for line in failures_of(sure, [])[0].evidence)


def test_a_rank_that_left_with_0_is_named_and_no_innocent_host() -> None:
    echo = failure("communication", 100.0, 0, GLOO)
    left = host(1, ends=[{"rank": 1, "code": 0, "time": 101.0}])
    first = failures_of([host(0, echo), left, host(2, failure("communication", 100.1, 2, GLOO))], [])[0]
    assert (first.kind, first.host, first.rank, first.category) == ("left", "gpu02", 1, "left_early")
    assert "2 other ranks waited" in first.message
    killed = failure("signal", 99.0, 2, "killed by signal 9 (SIGKILL)", 137)
    assert failures_of([host(0, echo), left, host(2, killed)], [])[0].kind == "signal"


def living(rank: int, *stack: str, state: str = "S") -> dict[str, Any]:
    return {"rank": rank, "state": state, "stack": list(stack)}


def test_the_rank_that_did_not_come_is_named_with_its_place() -> None:
    late = failure("communication", 100.0, 0, LATE, traceback="of 0") | {"class": "collective_timeout"}
    elsewhere = host(1, living=[living(1, "/job/code/data.py:33 load", "/job/code/train.py:8 step")])
    first = failures_of([host(0, late), elsewhere, host(2, living=[living(2, *IN_COLLECTIVE)])], [])[0]
    assert (first.host, first.rank, first.category) == ("gpu02", 1, "collective_timeout")
    assert "/job/code/data.py:33 load" in first.message
    assert first.traceback == ""
    stopped = host(1, living=[living(1, state="T")])
    first = failures_of([host(0, late), stopped], [])[0]
    assert (first.rank, first.category) == (1, "stopped")


def test_a_rank_whose_collective_broke_and_that_was_seen_leaving_did_not_stay_away() -> None:
    aborted = failure("communication", 100.0, 1, LATE, 134) | {"class": "collective_timeout"}
    broken = host(
        0,
        failure("communication", 100.1, 0, GLOO),
        living=[living(0, "/v/lib/python3.11/site-packages/torch/library.py:665 _del_library")],
    )
    first = failures_of([broken, host(1, aborted)], [])[0]
    assert (first.host, first.rank, first.category) == ("gpu02", 1, "collective_timeout")


@pytest.mark.parametrize(("later_s", "rank"), [(0.3, 1), (60.0, 2)])
def test_an_abort_by_a_time_out_comes_before_the_connections_that_it_broke(later_s: float, rank: int) -> None:
    aborted = failure("communication", 100.0 + later_s, 1, LATE, 134) | {"class": "collective_timeout"}
    first = failures_of([host(1, aborted), host(2, failure("communication", 100.0, 2, GLOO))], [])[0]
    assert first.rank == rank


def test_where_all_waited_the_flight_recorder_tells_who_is_behind() -> None:
    def timed_out(rank: int, number: int) -> dict[str, Any]:
        call = {"collective": "gloo:all_reduce", "number": number, "sizes": "[[4]]"}
        return failure("communication", 100.0 + rank, rank, LATE, flight={"0": call}) | {"class": "collective_timeout"}

    words = [host(place, timed_out(place, 6 if place == 1 else 7)) for place in range(3)]
    first = failures_of(words, [])[0]
    assert first.rank == 1
    assert "came to gloo:all_reduce number 6 only, where others wait in gloo:all_reduce number 7" in first.message


def called(number: int, *, members: list[int], sizes: str = "[[4]]", pending: bool = True) -> dict[str, Any]:
    call = {"collective": "gloo:all_reduce", "number": number, "sizes": sizes, "types": "Float"}
    return {**call, "members": members, **({"pending": call} if pending else {})}


def waited(rank: int, **groups: Any) -> dict[str, Any]:
    records = {name[1:]: group for name, group in groups.items()}
    return failure("communication", 100.0 + rank, rank, LATE, flight=records) | {"class": "collective_timeout"}


ALL, PAIR = [0, 1, 2], [0, 1]


def test_ranks_that_wait_for_each_other_in_two_groups_are_named_and_none_is_blamed() -> None:
    done = called(1, members=ALL, pending=False)
    words = [
        host(0, waited(0, g0=done, g1=called(1, members=PAIR))),
        host(1, waited(1, g0=done, g2=called(1, members=PAIR))),
        host(2, waited(2, g0=called(2, members=ALL))),
    ]
    first = failures_of(words, [])[0]
    assert (first.rank, first.category, first.traceback) == (None, "collective_mismatch", "")
    assert first.message.startswith("ranks 0, 1 wait for each other") and "is not known" in first.message
    assert "in group 1, where it waits for rank 1" in first.message
    assert (
        "rank 2 came to gloo:all_reduce number 2 of sizes [[4]] of type Float, where it waits for rank 0, 1"
        in "\n".join(first.evidence)
    )
    assert "branches" in first.remedy


# as torch 2.10 left it where one rank broadcast from another root: 0 and 2 came to broadcast 6, and 1 went on from it
BROADCAST = {**called(6, members=ALL)["pending"], "collective": "gloo:broadcast"}
IN_BROADCAST = {**BROADCAST, "members": ALL, "pending": BROADCAST}


def test_of_a_call_to_which_all_came_and_that_did_not_end_no_rank_is_blamed() -> None:
    gone_on = {**called(7, members=ALL), "recent": [BROADCAST]}
    words = [host(rank, waited(rank, g0=gone_on if rank == 1 else IN_BROADCAST)) for rank in ALL]
    first = failures_of(words, [])[0]
    assert (first.rank, first.category, first.traceback) == (None, "collective_timeout", "")
    assert first.message.startswith("rank 0, 2 did not go on from gloo:broadcast number 6, to which all ranks")
    assert "root (src, dst)" in first.message and "which rank is at fault is not known" in first.message
    assert "all_reduce 6" not in first.message and "named rank" not in first.remedy
    alone = failures_of([host(rank, waited(rank, g0=called(3, members=PAIR))) for rank in PAIR], [])[0]
    assert alone.rank is None and "root" not in alone.message


# as torch 2.10 says it of ranks of which one looks for the store at another port
CLIENTS = "torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. 2/3 clients joined."
ASKS = "DistNetworkError: The client socket has timed out after 8000ms while trying to connect to (127.0.0.1, 29999)."
MEETS = ["/v/site-packages/torch/distributed/rendezvous.py:189 _create_c10d_store", "/job/code/train.py:5 <module>"]


def unmet(rank: int, message: str) -> dict[str, Any]:
    return failure("communication", 100.0 + rank, rank, message, traceback=f"of {rank}") | {"class": "rendezvous"}


def keys(of: int) -> str:
    return f"torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/{of}"


@pytest.mark.parametrize(
    ("messages", "living_two", "says"),
    [
        ([keys(2), keys(2)], None, "did not come to the store"),
        ([keys(2), keys(2)], MEETS, "it is at /job/code/train.py:5"),
        ([CLIENTS, keys(0)], MEETS, "did not come to the store"),
        ([CLIENTS, keys(0), ASKS], None, "trying to connect to (127.0.0.1, 29999)"),
    ],
)
def test_who_looked_for_the_store_elsewhere_is_named(messages: list[str], living_two: Any, says: str) -> None:
    words = [host(rank, unmet(rank, message)) for rank, message in enumerate(messages)]
    if len(messages) == 2:
        words.append(host(2, living=[living(2, *living_two)] if living_two else [], ends=[{"rank": 2, "code": 143}]))
    first = failures_of(words, [])[0]
    assert (first.host, first.rank, first.category) == ("gpu03", 2, "rendezvous")
    assert says in first.message and "MASTER_PORT" in first.remedy
    assert first.traceback == ("of 2" if len(messages) == 3 else "")


def test_sizes_that_do_not_fit_are_told_where_the_ranks_timed_out() -> None:
    small, large = called(3, members=ALL, sizes="[[8]]"), called(3, members=ALL, sizes="[[12]]")
    words = [host(rank, waited(rank, g0=large if rank == 1 else small)) for rank in ALL]
    first = failures_of(words, [])[0]
    assert (first.rank, first.category) == (1, "collective_mismatch")
    assert "[[12]]" in first.message and "2 other ranks" in first.message and "raise" not in first.remedy
    pair = failures_of(words[:2], [])[0]
    assert pair.category == "collective_mismatch" and "[[12]]" in pair.message and "[[8]]" in pair.message


def test_calls_of_different_groups_are_not_compared() -> None:
    rows = {0: {"1": called(5, members=[0, 2])}, 1: {"2": called(2, members=[1, 3], sizes="[[9]]")}}
    rows |= {2: {"1": called(5, members=[0, 2])}, 3: {"2": called(2, members=[1, 3], sizes="[[9]]")}}
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
    rows = {rank: {"0": {**called(3, members=PAIR, sizes=f"[[{8 + rank}]]"), "collective": name}} for rank in PAIR}
    for row in rows.values():
        del row["0"]["pending"]
    assert bool(read(rows).unlike()) is is_compared


def test_of_different_calls_the_odd_one_is_named() -> None:
    def mismatch(rank: int, sizes: str, types: str = "Float") -> dict[str, Any]:
        call = {"collective": "gloo:all_reduce", "number": 3, "sizes": sizes, "types": types}
        found = failure("exception", 100.0 + rank, rank, "RuntimeError: op.preamble.length <= op.nbytes. 8 vs 4")
        return found | {"class": "collective_mismatch", "flight": {"0": call}}

    words = [host(place, mismatch(place, "[[9000]]" if place == 2 else "[[4]]")) for place in range(3)]
    assert failures_of(words, [])[0].rank == 2
    words = [host(place, mismatch(place, "[[4]]", "Double" if place == 1 else "Float")) for place in range(3)]
    first = failures_of(words, [])[0]
    assert first.rank == 1 and "of sizes [[4]] of type Double; 2 other ranks" in first.message


# as faulthandler of Python 3.11 wrote it, of a thread of torch that was left when a script had ended
WOUND_DOWN = "Fatal Python error: Aborted\n\nThread 0x00007f1d0985c040 (most recent call first):\n  <no Python frame>\n"


def test_a_script_that_ended_and_was_aborted_at_its_exit_left_early_where_others_waited() -> None:
    verdict = judge(Evidence(code=-6, stack=WOUND_DOWN, log="terminate called without an active exception\n"))
    assert (verdict.kind, verdict.category) == ("signal", "abort_at_exit")
    assert "its script had ended" in verdict.evidence[1]
    aborted = failure("signal", 100.5, 1, verdict.message, 134) | {"class": verdict.category}
    alone = failures_of([host(1, aborted), host(0)], [])[0]
    assert (alone.category, "destroy_process_group" in alone.remedy) == ("abort_at_exit", True)
    missed = failures_of([host(0, failure("communication", 100.0, 0, GLOO)), host(1, aborted)], [])[0]
    assert (missed.rank, missed.category) == (1, "left_early")
    assert missed.message.startswith("its script ended while 1 other rank waited for it")


def test_an_xid_explains_ranks_that_waited_in_vain() -> None:
    late = failure("communication", 100.0, 0, LATE) | {"class": "collective_timeout"}
    line = "NVRM: Xid (PCI:0000:10:1c): 79, pid=77, name=python, GPU has fallen off the bus."
    first = failures_of([host(0, late), host(1, xids=[line])], [])[0]
    assert (first.host, first.category) == ("gpu02", "xid")
    assert first.remedy.startswith("Xid 79")


READER = ["/v/site-packages/torch/serialization.py", 807, "__init__"]


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
        ([link("OSError", "[Errno 22] Invalid argument", errno=22, frames=[READER, ["/c/t.py", 1, "x"]])],
         "script_error"),
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


def test_one_row_knows_what_is_said_of_a_home() -> None:
    assert sum(NO_PROJECT in row.sign and NO_PROJECT in row.example for row in advice()) == 1


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
        (Evidence(code=-11, forks=("x",)), "signal", "limits", "perhaps"),
        (Evidence(code=2, log="usage: t.py\nt.py: error: unrecognized arguments: --x\n"), "exit", "bad_argument", "x"),
        (Evidence(code=-9), "signal", "killed_from_outside", "SIGKILL"),
        (Evidence(code=-9, memory_killer=("oom_kill went from 0 to 1",)), "signal", "host_out_of_memory", "killer"),
        (Evidence(code=-11), "signal", "crash", "SIGSEGV"),
        (Evidence(code=-13), "signal", "interrupted", "its reader had closed"),
        (Evidence(code=-24), "signal", "limits", "CPU time"),
        (Evidence(code=-9, cpu=CpuTime(5, 5.01, 0), memory_killer=("x",)), "signal", "host_out_of_memory", "killer"),
        (Evidence(code=137, cpu=CpuTime(5, 0.1, 5.0)), "exit", "limits", "CPU time"),
        (Evidence(code=1, kernel=("log",), xid=True, note={"chain": [link("RuntimeError", "CUDA error: x")]}),
         "exception", "xid", "CUDA error"),
        (Evidence(code=-6, note={"chain": [link("KeyError", "x")]}), "exception", "script_error", "KeyError"),
    ],
)  # fmt: skip
def test_the_strongest_evidence_decides(known: Evidence, kind: str, category: str, says: str) -> None:
    verdict = judge(known)
    assert (verdict.kind, verdict.category) == (kind, category)
    assert says in verdict.message


FATAL = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/train.py", line 8 in step
  File "/home/me/train.py", line 20 in <module>

Extension modules: numpy.core (total: 1)"""


def test_a_library_for_another_torch_is_named_beneath_what_its_user_says_of_it() -> None:
    """As transformers says it: a module of its own could not be imported."""
    trainer = link("ModuleNotFoundError", "Could not import module 'Trainer'. Are its requirements defined?")
    beneath = {**link("RuntimeError", "operator torchvision::nms does not exist"), "role": "cause"}
    told = judge(Evidence(code=1, note={"chain": [trainer, beneath]}))
    assert told.category == "version_mismatch"
    failure = Failure("gpu01", 0, told.kind, told.message, 1, category=told.category, evidence=told.evidence)
    assert "{packages: {torchvision: null}}" in remedy_of(failure)


def test_a_crash_is_told_with_the_place_in_the_users_code() -> None:
    verdict = judge(Evidence(code=-11, stack=FATAL))
    assert "at /home/me/train.py:8 in step" in verdict.evidence
    assert verdict.traceback == FATAL


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
    assert any("a traceback that it handled: ValueError: handled" in line for line in verdict.evidence)


@pytest.mark.parametrize("code", [1, -6])
def test_the_last_words_of_who_left_no_exception_are_told(code: int) -> None:
    log = "step 3\ncannot find the shards under /data\n\n"
    assert "its last words: cannot find the shards under /data (log text only)" in judge(
        Evidence(code=code, log=log, watched=True)).evidence  # fmt: skip
    assert not any("shards" in line for line in judge(Evidence(code=code, log=log, shared=True)).evidence)


IN_A_THREAD = "import threading; thread = threading.Thread(target=load, name='loader'); thread.start(); thread.join()\n"
CHAINED = "def load():\n    try: {}['a']\n    except KeyError as error: raise OSError('no shard') from error\n"
TASK = "import asyncio\nasync def main():\n    async def work(): load()\n    asyncio.ensure_future(work())\n"


@pytest.mark.parametrize(
    ("script", "whose"),
    [
        (IN_A_THREAD, "an uncaught exception of its thread loader"),
        (TASK + "    await asyncio.sleep(0)\nasyncio.run(main())\n", "an exception of asyncio's Task"),
    ],
)
def test_an_exception_that_ended_a_thread_is_none_that_the_rank_handled(script: str, whose: str) -> None:
    argv = [sys.executable, "-c", f"{CHAINED}{script}raise SystemExit(1)"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    for log in (done.stderr, "".join(f"[rank1]: {line}\n" for line in done.stderr.splitlines())):
        for watched in (True, False):
            verdict = judge(Evidence(code=1, log=log, watched=watched, left=watched))
            assert (verdict.kind, verdict.message) == ("exit", "exit status 1")
            (line,) = [line for line in verdict.evidence if "its log holds" in line]
            assert line.startswith(f"its log holds {whose}") and line.endswith(": OSError: no shard (log text only)")
            assert "handled" not in line


def test_a_time_limit_is_told_once_and_secrets_of_an_exception_are_starred() -> None:
    over = {**failure("time_limit", 100.0, 0, message="its time limit of 9 s is over"), "rank": None}
    (only,) = failures_of([host(0, over), host(1, {**over, "time": 100.01})], [])
    assert not any("may have been first" in line for line in only.evidence)
    raised = failure(
        "exception", 100.0, 0, "OSError: https://me:s3cr3t@h/x?token=abcd1234", traceback='key = "hf_' + 12 * "a"
    )
    (shown,) = failures_of([host(0, {**raised, "evidence": ["password: hunter22"]})], [])
    assert not any(word in str(shown) for word in ("s3cr3t", "abcd1234", "hf_a", "hunter22")), shown
    assert "https://***@h/x?token=***" in shown.message


def test_where_a_remedy_names_the_job_it_names_this_one() -> None:
    (first,) = failures_of([host(0, failure("exit", 1.0, 0))], [], "20260101-000000-0001")
    assert first.remedy.endswith("--host gpu01 20260101-000000-0001`")
