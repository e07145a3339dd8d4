"""What a host with Slurm's commands tells of a job's files, without Slurm."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.slurm.listing import read_row
from nodectl.model.job import Failure
from nodectl.payload.jobs import slurm

JOB = "20261123-070000-abcd"


class Ended:
    """A job of two nodes with two ranks each that Slurm says has FAILED; files as its nodes leave them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.folder = root / "jobs", root / "jobs" / JOB
        for name in ("ranks", "notes"):
            (self.folder / name).mkdir(parents=True)
        plan = {"nproc_per_node": 2, "hosts": [], "nodes": 2, "script": "t.py", "args": [], "created_at": 0.0}
        plan |= {"operator": "me", "checkpoint": ""}
        (self.folder / "plan.json").write_text(json.dumps(plan))
        (self.folder / "slurm.json").write_text('{"slurm_id": 7}')
        (self.folder / "hosts").write_text("node01\nnode02\n")
        (self.folder / "ended").write_text("1 1000.0")
        tools = root / "tools"
        tools.mkdir()
        self.squeue = tools / "squeue"
        self.slurm_says("FAILED")
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def slurm_says(self, word: str) -> None:
        self.squeue.write_text(f"#!/bin/sh\necho '7|{word}|p|None'\n")
        self.squeue.chmod(0o755)

    def node(self, node: int, log: str, status: int = 1, time_s: float = 990.0) -> None:
        """A node's part: its log, and how it ended when it had been up for 500 s."""
        (self.folder / "ranks" / f"{node}.log").write_text(log)
        (self.folder / "ranks" / f"{node}.end").write_text(f"{status} {time_s} 500.00\n")

    def note(self, rank: int, message: str, up_s: float, **more: Any) -> None:
        """What a rank's own Python wrote of its exception."""
        chain = [{"type": message.partition(":")[0], "message": message, "role": "raised", "frames": []}]
        note = {"monotonic_s": up_s, "chain": chain, "text": f"Traceback …\n{message}\n", "full": [], **more}
        (self.folder / "notes" / f"{rank}.error.json").write_text(json.dumps(note))

    def first(self) -> Failure:
        (row,) = slurm.show(str(self.root), JOB)
        job = read_row(json.loads(json.dumps(row)))
        assert job.first_failure is not None
        return job.first_failure


def failed(local_rank: int, code: int) -> str:
    return f"E1123 failed (exitcode: {code}) local_rank: {local_rank} (pid: 7) of binary: python\n"


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    return Ended(tmp_path, monkeypatch)


RESET = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.0.2]:36054"


def test_the_first_cause_comes_from_the_ranks_own_notes(ended: Ended) -> None:
    ended.node(0, f"[default0]:{RESET}\n" + failed(0, 1), time_s=989.0)
    ended.note(0, RESET, 488.0)
    ended.node(1, failed(1, 1))
    ended.note(3, "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-7'", 487.5)
    first = ended.first()
    assert (first.host, first.rank, first.category, first.exit_status) == ("node02", 3, "data_missing", 1)
    assert first.time == 990.0 - 12.5 and "shard-7" in first.traceback
    assert "its own error file: an uncaught exception" in first.evidence
    assert "node02" in first.remedy


@pytest.mark.parametrize(
    ("log", "status", "category", "rank", "words"),
    [
        (failed(1, -9), 1, "killed_from_outside", 1, "killed by signal 9 (SIGKILL)"),
        (failed(0, -11), 1, "crash", 0, "SIGSEGV"),
        (f"[default1]:t.py: error: no such option: --x\n{failed(1, 2)}", 1, "bad_argument", 1, "--x"),
        ("up\n", 137, "launcher_killed", None, "the launcher (torchrun) was killed by signal 9 (SIGKILL)"),
    ],
)  # fmt: skip
def test_each_way_to_end_has_its_class(
    ended: Ended, log: str, status: int, category: str, rank: int | None, words: str
) -> None:
    ended.node(0, log, status)
    ended.node(1, "SignalException: Process 9 got signal: 15\n", 1, 980.0)  # ended with it, and says so earlier
    first = ended.first()
    assert (first.host, first.category, first.rank) == ("node01", category, rank)
    assert words in first.message and first.remedy


def test_who_came_to_fewer_collectives_is_told_by_the_flight_recorders(ended: Ended) -> None:
    late = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
    for rank in range(4):
        node, local = divmod(rank, 2)
        call = {"collective_seq_id": 8 if rank == 3 else 9, "profiling_name": "nccl:allreduce", "input_sizes": [[4]]}
        place = ended.folder / "ranks" / str(node) / f"nccl_trace_x_rank_{rank}"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(pickle.dumps({"entries": [{**call, "process_group": ("0", "")}]}))
        if rank != 3:  # which its launcher ended
            ended.node(node, "".join(failed(n, 1) for n in range(local + 1)))
            ended.note(rank, f"torch.distributed.DistBackendError: {late}", 480.0)
    first = ended.first()
    assert (first.host, first.rank, first.category) == ("node02", 3, "collective_timeout"), first
    assert any("rank 3 came to nccl:allreduce number 8" in line for line in first.evidence), first.evidence
    assert json.loads((ended.folder / "flight.json").read_text()).keys() == {"0", "1", "2", "3"}
