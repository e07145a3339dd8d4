"""ncclras: text and JSON, healthy, behind, silent and dead."""

import json
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.ncclras import NcclRas, RasCommunicator, RasJob, RasProcess, RasRank, parse_ncclras
from tests.facts.parsers.tool_outputs import tool_output

TABLE = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""


def test_every_value_of_a_text_with_a_dead_process() -> None:
    healthy = RasCommunicator(None, 2, 0, "OK", "RUNNING", "OK")
    assert parse_ncclras(tool_output("ncclras", "incomplete.txt")) == NcclRas(
        nccl_version="2.28.9",
        job=RasJob(4, 32, 31),
        communicators=(
            RasCommunicator("cf264af53edbe986", 32, 1, "INCOMPLETE", "RUNNING", "INCOMPLETE"),
            healthy,
            healthy,
        ),
        dead=(RasProcess("172.16.64.213", 3487984, 5),),
        unresponsive=(),
        missing_ranks=(RasRank(21, "172.16.64.213", 5, "cf264af53edbe986"),),
        outliers=(),
    )


def test_every_value_of_a_document_with_a_dead_process() -> None:
    assert parse_ncclras("Connected\n" + tool_output("ncclras", "two-missing.json")) == NcclRas(
        nccl_version="2.29.7",
        job=RasJob(None, None, None),
        communicators=(RasCommunicator("0x5a1f", 3, 1, "INCOMPLETE", None, None),),
        dead=(RasProcess("10.0.0.2", 13, 6),),
        unresponsive=(),
        missing_ranks=(RasRank(2, "10.0.0.2", 6, "0x5a1f"),),
        outliers=(),
    )


def test_a_process_that_is_silent_is_not_yet_dead() -> None:
    text = tool_output("ncclras", "incomplete.txt")
    text = text.replace(
        "DEAD\n  1 job process is considered dead (unreachable via the RAS network)", "INCOMPLETE\n  Missing"
    )
    found = parse_ncclras(text)
    assert (found.dead, found.unresponsive) == ((), (RasProcess("172.16.64.213", 3487984, 5),))


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("  Rank 7 -- GPU 3 managed by process 3748990 on node node1", (7, "node1", 3)),
        ("  Rank 7 -- GPU 3 (NVML 5) managed by process 3748990 on node node1", (7, "node1", 3)),
        ("  Rank 9 has status INIT -- GPU 1 managed by process 12 on node 10.0.0.7", (9, "10.0.0.7", 1)),
        ("  Rank 4 -- [process information not found]", (4, None, None)),
        ("  Rank 6 reported unhandled cuda error -- GPU 6 managed by process 1 on node c", (6, "c", 6)),
        ("  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process 1 on node b", (2, "b", 2)),
    ],
)
@pytest.mark.parametrize("what", ["INCOMPLETE", "MISMATCH"])
def test_ranks_are_missing_or_behind(line: str, rank: tuple[int, str | None, int | None], what: str) -> None:
    found = parse_ncclras(
        f"{TABLE}    0   1   2  3-4   8   7  RUNNING  {what}\n\nWarnings\n========\n\n#0-0 (1bdb83) {what}\n{line}\n"
    )
    expected = (RasRank(*rank, "1bdb83"),)
    assert (found.missing_ranks, found.outliers) == ((expected, ()) if what == "INCOMPLETE" else ((), expected))


@pytest.mark.parametrize(
    ("errors", "status", "missing"),
    [
        ("OK", "OK", 0),
        ("MISMATCH", "MISMATCH", 0),
        ("ERROR,MISMATCH", "ERROR", 0),
        ("INCOMPLETE", "INCOMPLETE", 2),
        ("INCOMPLETE,ERROR,MISMATCH", "INCOMPLETE", 2),
    ],
)
def test_the_worst_word_is_the_status(errors: str, status: str, missing: int) -> None:
    (found,) = parse_ncclras(
        f"{TABLE}    0         1         4       7-8        32        30   RUNNING  {errors}\n"
    ).communicators
    assert (found.status, found.missing, found.errors, found.ranks) == (status, missing, errors, 32)


def test_a_list_of_missing_ranks() -> None:
    text = tool_output("ncclras", "incomplete.txt").replace(
        "from 1 rank\n  The missing rank: 21", "from 3 ranks\n  The missing ranks: 3,4,9"
    )
    found = parse_ncclras(text)
    assert [rank.rank for rank in found.missing_ranks] == [3, 4, 9]
    assert found.communicators[0].missing == 3


def document(**changes: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tool_output("ncclras", "two-missing.json"))
    found["communicators"][0].update(changes)
    return found


RANKS = document()["communicators"][0]["ranks"]


@pytest.mark.parametrize(
    ("changes", "status", "missing"),
    [
        ({"missing_ranks": [], "missing_ranks_count": 0}, "MISMATCH", 0),
        ({"missing_ranks": [], "missing_ranks_count": 0, "ranks": RANKS[:1]}, "OK", 0),
        (
            {"missing_ranks": [], "missing_ranks_count": 0, "ranks": [{**RANKS[0], "status": {"async_error": 3}}]},
            "ERROR",
            0,
        ),
        ({}, "INCOMPLETE", 1),
    ],
)
def test_the_status_of_a_document_s_communicator(changes: dict[str, object], status: str, missing: int) -> None:
    (found,) = parse_ncclras(json.dumps(document(**changes))).communicators
    assert (found.status, found.missing) == (status, missing)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (
            "Connecting to localhost:28028: Connection refused\nFailed to connect to the NCCL RAS service!\n",
            "got no answer: Connecting",
        ),
        ("bash: ncclras: command not found\n", "command not found"),
        ("hello\n", "line 1: 'hello': no table of communicators"),
        (f"{TABLE}    0         8         4 ", "line 3: .*cut"),
        (f"{TABLE}    0  99999999         4  1 2 3 RUNNING OK", "line 3"),
        (f"{TABLE}    0    999999         4  1 2 3 RUNNING OK", "of more than a job can have"),
        (f"{TABLE}    0  1  4  8  32  32  RUNNING  MISMATCH\n#0-0 (27a0", "line 4: .*a communicator that is cut"),
        (f"{TABLE}    0  1  4  8  32  32  RUNNING  OK\n#7-0 (27a0) MISMATCH", "not in the table"),
        (f"{TABLE}    0  1  4  8  32  32  RUNNING  OK\n  Process 34 on no", "line 4: .*a process or rank that is cut"),
        ("Job summary\n===========\n      4          8   ", "line 3: .*a summary of the job that is cut"),
        ('{"nccl_version": "2.29", "communicators": [', "line 1: .*no whole JSON"),
        ('{"other": 1}', "JSON without a list of communicators"),
        (json.dumps(document(size="three")), "'size' is 'three', not a whole number"),
        (json.dumps(document(ranks=7)), "'ranks' is '7', not a list of objects"),
        (json.dumps(document(missing_ranks=[{"host": "a"}])), "'rank' is missing"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_ncclras(text)
