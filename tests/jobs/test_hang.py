"""Who waits for whom in a running job, from what its hosts tell of their ranks."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.jobs.hang import judge
from nodectl.report.jobs import look_document, look_text

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed"
IN_ALL_REDUCE = [
    f"{TORCH}/distributed_c10d.py:3252 all_reduce",
    f"{TORCH}/c10d_logger.py:83 wrapper",
    "/c/train.py:9 step",
]
IN_BARRIER = [f"{TORCH}/distributed_c10d.py:5000 barrier", "/c/train.py:12 save"]
IN_RECV = [f"{TORCH}/distributed_c10d.py:2799 recv", "/c/train.py:5 <module>"]
LOADS = ["/c/data.py:33 load", "/c/train.py:8 step"]
MISMATCH = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  31 ranks have launched up to operation 6650
  1 ranks have launched up to operation 6649
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""


def told(*ranks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ranks": list(ranks), "network": {}, "gpus": [], "ras": "", "flight": {}, "xids": [], **more}


def rank(number: int, stack: list[str], *, state: str = "S", moved: bool = False) -> dict[str, Any]:
    return {"rank": number, "state": state, "stack": stack, "moved": moved, "cpu": 0.01, "output_age_s": 34.0}


def test_the_rank_that_others_wait_for_is_named_with_its_place() -> None:
    look = judge({"gpu01": told(rank(0, IN_ALL_REDUCE)), "gpu02": told(rank(1, LOADS), rank(2, IN_ALL_REDUCE))}, {})
    assert look.verdict == "rank 0, 2 wait in all_reduce for rank 1: it is at /c/data.py:33 load"
    assert look.missing == (1,)
    text = look_text(look)
    assert text.splitlines()[0] == look.verdict
    assert (
        "rank 0, 2 on gpu[01-02]: waits in all_reduce, it is at /c/train.py:9 step; CPU 0.01; last output 34 s" in text
    )
    assert look_document(look)["missing"] == (1,)


@pytest.mark.parametrize(
    ("ranks", "says", "missing"),
    [
        ([rank(0, IN_ALL_REDUCE), rank(1, IN_ALL_REDUCE, state="T")], "for rank 1: it is stopped", (1,)),
        ([rank(0, IN_ALL_REDUCE), rank(1, LOADS, moved=True)], "it may come yet", (1,)),
        ([rank(0, IN_ALL_REDUCE), rank(2, IN_ALL_REDUCE), rank(1, IN_BARRIER)], "rank 1 is in barrier", (1,)),
        ([rank(0, IN_ALL_REDUCE), rank(1, IN_ALL_REDUCE)], "none moves: the network", ()),
        ([rank(0, IN_RECV), rank(1, IN_RECV)], "in recv and none moves: each waits for another to send", ()),
        ([rank(0, IN_ALL_REDUCE, moved=True), rank(1, IN_ALL_REDUCE)], "and move", ()),
        ([rank(0, LOADS), rank(1, LOADS)], "no rank waits in a collective", ()),
        ([rank(0, []), rank(1, [])], "is not known", ()),
        ([rank(0, IN_ALL_REDUCE), {**rank(1, []), "call": "read() of /d/x"}], "not known, in read() of /d/x", (1,)),
        ([], "no rank was found", ()),
    ],
)
def test_verdicts(ranks: Any, says: str, missing: Any) -> None:
    look = judge({"gpu01": told(*ranks)}, {})
    assert says in look.verdict
    assert look.missing == missing


def test_ranks_that_wait_at_different_places_are_perhaps_in_different_groups() -> None:
    elsewhere = [IN_ALL_REDUCE[0], "/c/train.py:21 step"]
    apart = judge({"gpu01": told(rank(0, IN_ALL_REDUCE), rank(1, elsewhere), rank(2, LOADS))}, {})
    assert "perhaps for rank 2" in apart.verdict and "different process groups" in apart.verdict
    both = judge({"gpu01": told(rank(0, IN_ALL_REDUCE), rank(1, elsewhere))}, {})
    assert "perhaps they never meet" in both.verdict and "network" not in both.verdict


def test_what_nccl_torch_and_counters_tell_stands_beside_it() -> None:
    call = {"collective": "nccl:all_reduce", "sizes": "[[4]]"}
    dumps = {"0": {"groups": {"0": {**call, "number": 7}}}, "1": {"groups": {"0": {**call, "number": 6}}}}
    here = told(
        rank(0, IN_ALL_REDUCE),
        rank(1, IN_ALL_REDUCE),
        ras=MISMATCH,
        flight=dumps,
        network={"network out": 1 << 20},
        gpus=[{"index": 0.0, "use_percent": 100.0, "power_w": 92.5}],
        xids=["NVRM: Xid (PCI:0000:10:1c): 74"],
    )
    look = judge({"gpu01": here}, {"gpu02": "no answer"})
    assert look.missing == (1,)
    assert "rank 1 is behind" in look.verdict
    evidence = "\n".join(look.evidence)
    assert "came to nccl:all_reduce number 6" in evidence
    assert "rank 2 (172.16.64.210)" in evidence
    for words in ("MISMATCH", "network out 1.0 MiB/s", "GPU 0 100 % 92.5 W", "Xid"):
        assert words in evidence
    assert "gpu02: no answer" in look_text(look)
