# ruff: noqa: E501 - rows of foreign tables
"""Nsight Systems without it: a stand-in takes its command line and prints tables in its form, written by hand."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from nodectl.payload.jobs import nsys, traces
from nodectl.payload.jobs.folder import JobFolder

# the heads are nsys 2023's to 2026's; two steps of 1 ms, in each 300 us of maths, a copy of 100 us, a collective of
# 400 us, 100 us of which lie beside the maths
RANGES = """NOTICE: Existing SQLite export found: 0.sqlite
Processing [0.sqlite] with [nvtx_pushpop_trace.py]...
Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId,RangeStack,NameTree
1000000,2000000,1000000,0,1000000,:ProfilerStep#1,53,53,0,0,1,,:1,:ProfilerStep#1
2000000,3000000,1000000,0,1000000,:ProfilerStep#2,53,53,0,0,2,,:2,:ProfilerStep#2
"""
KERNELS = """Processing [0.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000000,100000,123,,,,,,,,,,4.194,6337.593,Pinned,Device,"NVIDIA H100 (0)",1,,7,[CUDA memcpy Host-to-Device]
1100000,300000,124,64,1,1,128,1,1,160,0.000,0.025,,,,,"NVIDIA H100 (0)",1,,7,"void gemm<float, 128>(int, int)"
1300000,400000,125,24,1,1,512,1,1,96,0.000,0.083,,,,,"NVIDIA H100 (0)",1,,20,ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
2000000,100000,126,,,,,,,,,,4.194,6337.593,Pinned,Device,"NVIDIA H100 (0)",1,,7,[CUDA memcpy Host-to-Device]
2100000,300000,127,64,1,1,128,1,1,160,0.000,0.025,,,,,"NVIDIA H100 (0)",1,,7,"void gemm<float, 128>(int, int)"
2300000,400000,128,24,1,1,512,1,1,96,0.000,0.083,,,,,"NVIDIA H100 (0)",1,,20,ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)
"""
STAND_IN = """#!/bin/sh
echo "$@" >> "$HOME/calls"
case $1 in
  stats) cat "$HOME/${2#--report=}"; touch "${6%.nsys-rep}.sqlite" ;;
  profile)
    for word; do case $word in --output=*) touch "${word#--output=}.nsys-rep" ;; --*|profile) ;; *) break ;; esac; done
    while [ "${1#--}" != "$1" ] || [ "$1" = profile ]; do shift; done
    exec "$@" ;;
esac
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder: `calls` are the command lines it got, and it prints what lies there by a report's name."""
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "nvtx_pushpop_trace").write_text(RANGES)
    (tmp_path / "cuda_gpu_trace").write_text(KERNELS)
    return tmp_path


def job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[JobFolder, Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    made = JobFolder("20261123-000000-abcd")
    place = Path(made.at("traces"))
    place.mkdir(parents=True)
    return made, place


def test_a_report_is_read_like_a_trace(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, folder = job(stand_in, monkeypatch)
    (folder / "5.nsys-rep").write_bytes(b"x" * 10)
    (folder / "5.note.json").write_text(json.dumps({"tool": "nsys", "problem": "", "attempt": 1, "optimizer_steps": 9}))
    [row] = traces.look(made)
    assert (row["rank"], row["file"], row["size_bytes"], row["problem"]) == (5, "5.nsys-rep", 10, "")
    assert row["summary"]["device"] == "gpu"
    parts = {"compute": 300, "copy": 100, "communication": 300, "loading": 0, "idle": 300}
    assert [(step["step_us"], step["collectives_us"], step["parts_us"]) for step in row["summary"]["steps"]] == [
        (1000, 400, parts), (1000, 400, parts),
    ]  # fmt: skip
    calls = (stand_in / "calls").read_text().splitlines()
    assert [call.split()[:2] for call in calls] == [
        ["stats", "--report=nvtx_pushpop_trace"],
        ["stats", "--report=cuda_gpu_trace"],
    ]
    assert not (folder / "5.sqlite").exists()
    assert traces.look(made) == [row] and len((stand_in / "calls").read_text().splitlines()) == 2


def test_a_rank_runs_under_it_and_sees_nothing_of_that(stand_in: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    script = tmp_path / "show me.py"
    shows = (
        "import os, sys; print(sys.argv[1:], [name for name in os.environ if 'NSYS' in name or name == 'PYTHON_EXEC'])"
    )
    script.write_text(shows)
    env = {**os.environ, **nsys.environment(), "NODECTL_JOB_DIR": str(tmp_path), "RANK": "4"}
    done = subprocess.run(
        [env["PYTHON_EXEC"], "-u", str(script), "a b", "--x"], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['a b', '--x'] []\n"
    shown = nsys.argv("nsys", f"{tmp_path}/traces/4")
    assert (stand_in / "calls").read_text().startswith(" ".join(shown[1:]) + " ")
    assert (tmp_path / "traces" / "4.nsys-rep").exists()
