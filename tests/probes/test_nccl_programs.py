"""nccl-tests' programs: what their outputs come to, and what is cut, wrong or missing."""

from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.nccl.engines import measure_by_programs as measure
from nodectl.probes.nccl.engines import read
from nodectl.probes.nccl.fleet import Group, Part, Ready, Route
from nodectl.probes.nccl.run import NcclOptions, Run
from nodectl.probes.options import Sizes
from nodectl.transport.router import LocalTransport
from tests.probes.scripted_nccl import LOOK, fleet_of, probe, with_gpus

HEAD = """\
# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid  71001 on gpu01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  71001 on gpu01 device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
        1024           256     float     sum      -1    10.24    0.10    0.10      0   10.50    0.10    0.10      0
        4096          1024     float     sum      -1   20.48    0.20    0.20     {wrong}   20.00    0.20    0.20      0
"""
TAIL = """\
# Out of bounds values : {wrong} {verdict}
# Avg bus bandwidth    : 0.15
#
"""
GOOD = HEAD + ROWS.format(wrong=0) + TAIL.format(wrong=0, verdict="OK")
BAD = HEAD + ROWS.format(wrong=3) + TAIL.format(wrong=3, verdict="FAILED")


def ready(name: str, programs: str = "/opt/nccl-tests") -> Ready:
    endpoint = Endpoint(Host(name, "127.0.0.1", connection="local"), "127.0.0.1", "lo", 65536, 29500, None, None, 2)
    return Ready(endpoint, programs=programs)


def group(*hosts: Ready) -> Group:
    return Group(tuple(Part(each, 2, (0, 1), "lo") for each in hosts or (ready("gpu01"),)))


def output(text: str, status: int = 0) -> dict[str, Any]:
    return {"status": status, "text": text}


def test_repetitions_are_one_case_a_size() -> None:
    found = read("all_reduce", [output(GOOD), output(GOOD.replace("20.48", "40.96"))], group(), "gpu01")
    assert (found.findings, found.cut) == ((), ())
    small, large = found.cases
    assert (small.size_bytes, large.size_bytes, large.wrong) == (1024, 4096, 0)
    assert large.seconds == pytest.approx((20.48e-6, 40.96e-6))
    assert large.more == {"in_place_busbw_gb_s": pytest.approx(0.2), "printed_busbw_gb_s": pytest.approx(0.2)}


@pytest.mark.parametrize(
    ("text", "status", "cut", "said"),
    [
        (HEAD + ROWS.format(wrong=0), 0, "the output ends before its summary", ""),
        (HEAD + ROWS.format(wrong=0), 124, "the time was over", ""),
        (BAD, 0, "", "3 wrong elements over its GPUs"),
        (GOOD, 7, "", "ended with exit status 7"),
        (HEAD + "gpu01: Test NCCL failure common.cu:1303 'unhandled system error'\n", 3, "", "Test NCCL failure"),
    ],
)
def test_what_is_no_pass(text: str, status: int, cut: str, said: str) -> None:
    found = read("all_reduce", [output(text, status)], group(), "gpu01")
    told = [each.actual for each in found.findings if each.status is Status.FAILED]
    assert bool(told) == (bool(said) and said != "a row that is cut")
    assert any(said in each for each in (*told, *found.cut))
    assert any(cut in each for each in found.cut) or not cut


def fake_program(folder: Path, text: str, log: str = "", status: int = 0) -> str:
    folder.mkdir(parents=True)
    (folder / "text").write_text(text)
    (folder / "log").write_text(log)
    program = folder / "all_reduce_perf"
    logged = f'[ "$NCCL_DEBUG" = INFO ] && cat "{folder}/log" >"$NCCL_DEBUG_FILE"'
    told = f'echo "$NCCL_DEBUG $CUDA_DEVICE_ORDER $*" >>"{folder}/runs"'
    program.write_text(f'#!/bin/sh\n{told}\n{logged}\ncat "{folder}/text"\nexit {status}\n')
    program.chmod(0o755)
    return str(folder)


def run_fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, log: str = "", status: int = 0) -> ProbeResult:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hosts = group(ready("gpu01", fake_program(tmp_path / "v1", text, log, status)))
    options = NcclOptions(sizes=Sizes((1024, 4096)), repetitions=2, collectives=("all_reduce", "sendrecv"))
    return measure(LocalTransport(), hosts, Run("nccl-tests", "nccl", options, {"gpu01": Route(link_class="pcie")}))


def test_a_program_that_prints_as_nccl_tests_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not nccl-tests itself, which needs GPUs: a script with its output and NCCL's log."""
    log = "gpu01:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n" + "".join(
        f"gpu01:1:2 [0] NCCL INFO AllReduce: {size} Bytes -> Algo RING proto {proto} channel{{Lo..Hi}}={{0..1}}\n"
        for size, proto in ((1024, "LL"), (4096, "SIMPLE"))
        for _ in range(50)
    )
    found = run_fake(monkeypatch, tmp_path, GOOD, log)
    assert [(each.status, each.subject) for each in found.findings] == [(Status.SKIPPED, "sendrecv")]
    small, large = found.measurements
    assert (small.conditions["protocol"], large.conditions["protocol"]) == ("LL", "SIMPLE")
    assert (small.conditions["verdict_size"], large.conditions["verdict_size"]) == ("small", "large")
    expected = {"engine": "nccl-tests", "gpus": 2, "ranks": 2, "nccl": "2.28.9+cuda13.0", "complete": True}
    assert {**expected, "link_class": "pcie", "repetitions": 2}.items() <= large.conditions.items()
    assert large.value == pytest.approx(0.2)
    proof, *timed = (tmp_path / "v1" / "runs").read_text().splitlines()
    assert proof.startswith("INFO PCI_BUS_ID ") and proof.endswith("-c 0 -n 1 -w 1")
    assert len(timed) == 2
    assert all(run.startswith("WARN PCI_BUS_ID ") and run.endswith("-c 1 -n 20 -w 5") for run in timed)


def test_a_program_that_is_killed_is_incomplete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = run_fake(monkeypatch, tmp_path, HEAD + ROWS.format(wrong=0), status=9)
    kinds = {(each.kind, each.status) for each in found.findings}
    assert {("incomplete", Status.UNKNOWN), ("host", Status.FAILED)} <= kinds
    assert {each.conditions["complete"] for each in found.measurements} == {False}


@pytest.mark.parametrize(
    ("engine", "torch", "programs", "taken"),
    [
        ("auto", "2.7.0+cu128", "/opt/x", "torch"),
        ("auto", None, "/opt/x", "nccl-tests"),
        ("nccl-tests", "2.7.0+cu128", "/opt/x", "nccl-tests"),
    ],
)
def test_the_engine(monkeypatch: pytest.MonkeyPatch, engine: str, torch: str | None, programs: str, taken: str) -> None:
    asked: list[str] = []

    def answers(host: str, module: str, args: Any) -> Any:
        answer = with_gpus(host, module, args) if module == "probes.endpoints" or args[0] != "programs" else None
        if answer is None:
            asked.append("nccl-tests")
            return type(with_gpus(host, "probes.endpoints", args))([])
        if module == "probes.endpoints":
            return type(answer)([{**answer.events[0], "torch": torch}])
        if args[0] == "look":
            return type(answer)([{**LOOK, "programs": programs}])
        asked.append("torch")
        return answer

    fleet = fleet_of(monkeypatch, answers)
    probe(fleet, engine=engine, scope="node")
    assert set(asked) == {taken}
    if taken == "nccl-tests":
        with pytest.raises(UsageError, match="one host at a time"):
            probe(fleet, engine=engine)
