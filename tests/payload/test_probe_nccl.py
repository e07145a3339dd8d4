"""probes/nccl as a node runs it: checks that find what is wrong, logs, sockets, and a limited time."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from nodectl.payload.probes.nccl import log, probe
from tests.torch_venv import torch_venv

PROGRAM = (str(payload_dir() / "run.py"), "probes.nccl.probe")
# of one rank, whose results are its own: what `wrong` finds when an element is changed or was never written
CHECKS = """
import json, sys
import torch
from payload.probes.nccl import group
group.PIECE = 26
ranks = group.Cases(torch, 1, 3, torch.device("cpu"))
found = {}
for name in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "sendrecv"):
    case = ranks.case(name, 4 * 300)
    for part, values in ranks.pieces(case.result, case.expected):
        part.copy_(values)
    right = ranks.wrong(case)
    case.result[60] += 1
    changed = ranks.wrong(case)
    ranks.fill(case)
    found[name] = [case.size_bytes, right, changed, case.result is not case.data and ranks.wrong(case)]
    found[name].append([float(case.data[at]) for at in (0, 14, 27)])
print(json.dumps(found))
"""


def test_every_element_is_checked() -> None:
    python = f"{torch_venv()}/bin/python"
    done = subprocess.run(
        [python, "-B", "-c", CHECKS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(payload_dir().parent)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # the pattern, and rank 1 of 3; of all_to_all the part for rank 0
    given = [1.0, 2.0, 2.0]
    assert found == {
        "all_reduce": [1200, 0, 1, False, given],
        "broadcast": [1200, 0, 1, False, given],
        "all_gather": [1200, 0, 1, 300, given],
        "reduce_scatter": [1200, 0, 1, 100, given],
        "all_to_all": [1200, 0, 1, 300, given],
        "sendrecv": [1200, 0, 1, 300, given],
    }


def test_a_log_is_turned_away_and_back_by_its_handle(tmp_path: Path) -> None:
    mine = log.Log()
    try:
        environment = mine.environment()
        assert environment["NCCL_DEBUG"] == "INFO"
        mine.pause()  # nobody has opened it yet
        with Path(environment["NCCL_DEBUG_FILE"]).open("w", buffering=1) as written:
            written.write("a:1:2 [0] NCCL INFO NET/IB : No device found.\n")
            mine.pause()
            written.write("a:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL \n")
            mine.resume()
            written.write("a:1:2 [0] NCCL INFO AllReduce: 16 Bytes -> Algo RING proto LL \n")
        assert mine.lines() == [
            "NCCL INFO NET/IB : No device found.",
            "NCCL INFO AllReduce: 16 Bytes -> Algo RING proto LL",
        ]
    finally:
        mine.remove()


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from payload.probes.nccl.log import Log
mine = Log()
with open(mine.environment()["NCCL_DEBUG_FILE"], "w") as written:
    written.write("NCCL INFO NET/IB : No device found.\\n")
assert mine.lines()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rank_that_is_killed_leaves_no_log(tmp_path: Path) -> None:
    argv = [sys.executable, "-B", "-c", KILLED, str(payload_dir().parent)]
    done = subprocess.run(argv, timeout=60, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_a_log_is_reduced_to_what_proves_something() -> None:
    who = "node-a:41001:41023 [0] "
    lines = [
        who + "NCCL INFO cudaDriverVersion 12080",
        who + "NCCL INFO NCCL version 2.26.5+cuda12.9",
        *(
            f"{who}NCCL INFO Channel {number:02}/0 : {number}[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
            for number in range(16)
        ),
        who + "NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        *[who + "NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL "] * 3,
        who + "NCCL INFO AllReduce: opCount 1606 sendbuff 0x93fd44a00 count 2359808",
        who + "NCCL WARN Call to ibv_reg_mr failed",
        "# nThread 1",
    ]
    found = log.reduced(lines)
    assert len(found) == 5
    assert [line for line in found if "via NET" in line] == [
        "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        "NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    ]
    assert len(log.reduced(f"{who}NCCL INFO NET/IB : {number}" for number in range(5000))) == log.MOST_LINES


def test_the_interface_of_a_connection_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0]:
            seen = set(probe.established({str(os.fstat(client.fileno()).st_ino)}, but_port=1))
            assert seen == {("127.0.0.1", "127.0.0.1")}
            assert probe.used_interfaces(but_port=1)["interfaces"].get("lo", 0) >= 2
            assert not set(probe.established({str(os.fstat(client.fileno()).st_ino)}, but_port=port))


@pytest.mark.parametrize(
    ("usual", "asked", "last", "taken"),
    [
        (1, 64 << 20, None, 64 << 20),
        (1, 64 << 20, (1 << 20, 0.001), 64 << 20),
        (1, 64 << 20, (1 << 20, 0.1), 4 << 20),
        # nothing beyond the one that was measured
        (1, 64 << 20, (1 << 20, 0.9), 0),
        (0, 64 << 20, (1 << 20, 0.9), 64 << 20),
    ],
)
def test_a_usual_size_is_quartered_until_a_second_carries_it(
    usual: int, asked: int, last: tuple[int, float] | None, taken: int
) -> None:
    own = probe.Sweep.__new__(probe.Sweep)
    own.options = argparse.Namespace(usual=usual)
    assert own._carried(asked, last) == taken


def ranks(*more: str) -> list[str]:
    """One rank of a group of two whose other never comes."""
    own = ["--rank-base=0", "--world-size=2", "--nproc=1", "--master-port=0", "--master-addr=127.0.0.1"]
    own += ["--backend=gloo", "--timeout=60", "--collectives=all_reduce", "--sizes=1024", "--repetitions=1"]
    return [f"{torch_venv()}/bin/python", "-B", *PROGRAM, *own, "--seconds=0.01", *more]


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def test_a_rank_that_is_killed_is_said_and_none_is_left() -> None:
    with subprocess.Popen(ranks(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        deadline = time.monotonic() + 30
        while not (found := children_of(program.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)
        out, _ = program.communicate(timeout=30)
    events = [json.loads(text) for text in texts(out)]
    assert [each["text"] for each in events if each["event"] == "error"] == ["local rank 0 was ended by SIGKILL"]
    assert program.returncode == signal.SIGKILL


def test_what_a_limited_time_would_not_do_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    own = probe.Sweep.__new__(probe.Sweep)
    own.options = argparse.Namespace(repetitions=5, seconds=0.05)
    monkeypatch.setattr(own, "group", SimpleNamespace(largest=lambda value: value), raising=False)
    own.part_ends = time.monotonic() + 60
    # 64 MiB took 2 s: at 128 MiB five repetitions take 20 s, at 1 GiB 160 s
    own.seen = 64 << 20, 2.0, 4.0
    own._require_room_in_time(128 << 20)
    with pytest.raises(probe.CutError, match="an operation takes about 32 s"):
        own._require_room_in_time(1 << 30)
