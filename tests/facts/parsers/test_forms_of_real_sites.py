"""Forms of known tools that real sites print and the lab did not: each is read, or refused for the true reason."""

from __future__ import annotations

import json

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.dmesg import parse_dmesg
from nodectl.facts.parsers.nccl.nccl_log import parse_nccl_log
from nodectl.facts.parsers.nccl.nccl_tests import NcclTestsRank, NcclTestsSide, parse_nccl_tests
from nodectl.facts.parsers.nccl.ncclras import RasProcess, RasRank, parse_ncclras
from nodectl.facts.parsers.nvidia.smi_q import report
from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.facts.parsers.rdma.perftest import parse_perftest
from tests.facts.parsers.tool_outputs import recorded_text

HEAD = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
ROW = "1024 256 float sum -1 37.89 0.03 0.05 0 35.31 0.04 0.06 2"


def sides(text: str) -> list[tuple[float | None, ...]]:
    (row,) = parse_nccl_tests(text).rows
    found = (row.out_of_place, row.in_place)
    return [(s.time_us, s.algbw_gb_s, s.busbw_gb_s, s.wrong) for s in found if s]


@pytest.mark.parametrize(
    ("columns", "values"),
    [("timestamp", "2026-03-04 05:06:07"), ("#iters", "21"), ("#iters timestamp", "21 2026-03-04 05:06:07")],
)
def test_columns_behind_both_sides_shift_no_value(columns: str, values: str) -> None:
    expected = [(37.89, 0.03, 0.05, 0), (35.31, 0.04, 0.06, 2)]
    assert sides(f"{HEAD} {columns}\n{ROW} {values}\n") == expected
    assert sides(f"{HEAD.replace('time', 'cputime')} {columns}\n{ROW} {values}\n") == expected


@pytest.mark.parametrize("values", ["2026-03-04", "05:06:07", "", "7"])
def test_a_row_cut_within_its_timestamp_is_no_row(values: str) -> None:
    with pytest.raises(ParseError, match=r"line 2.*cut"):
        parse_nccl_tests(f"{HEAD} timestamp\n{ROW} {values}\n")


def run_document(**changes: object) -> dict[str, object]:
    side = {"time": 11.5, "alg_bw": 12.25, "bus_bw": 13.75, "nwrong": 0.0}
    device = {"rank": 3, "group": 1, "pid": 4141, "hostname": "node-q", "device": 5, "device_hex": "0000:9b:00"}
    result = {"size": 64, "count": 16, "type": "float", "redop": "sum", "root": "    -1", "out_of_place": side}
    return {
        "version": 3,
        "args": ["./build/reduce_scatter_perf", "-J", "out.json"],
        "config": {"ngpus": 1, "devices": [{**device, "device_info": "NVIDIA H100 80GB HBM3"}]},
        "results": [{**result, "in_place": {**side, "time": 21.5, "nwrong": None, "bus_bw": "nan"}}],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 13.5, "okay": "unchecked"},
        "errors": ["no error"],
        **changes,
    }


def test_every_value_of_the_file_that_minus_j_writes() -> None:
    run = parse_nccl_tests(json.dumps(run_document()))
    assert run.collective == "reduce_scatter"
    assert run.ranks == (NcclTestsRank(3, "node-q", 5, "NVIDIA H100 80GB HBM3", 4141, 1, "0000:9b:00"),)
    (row,) = run.rows
    assert (row.size_bytes, row.count, row.type, row.redop, row.root) == (64, 16, "float", "sum", -1)
    assert row.out_of_place == NcclTestsSide(11.5, 12.25, 13.75, 0, None, {})
    assert row.in_place == NcclTestsSide(21.5, 12.25, None, None, None, {"busbw_gb_s": "nan"})
    assert (run.out_of_bounds, run.average_busbw_gb_s, run.ok, run.failures) == (0, 13.5, True, ())


@pytest.mark.parametrize(
    ("changes", "ok"),
    [
        ({"out_of_bounds": {"count": 7, "okay": "false"}}, False),
        ({"average_bus_bandwidth": {"bandwidth": 1.5, "okay": "false"}}, False),
        ({"errors": ["unhandled system error"]}, False),
        ({"out_of_bounds": None, "average_bus_bandwidth": None, "errors": None}, None),
    ],
)
def test_the_verdict_of_such_a_file(changes: dict[str, object], ok: bool | None) -> None:
    assert parse_nccl_tests(json.dumps(run_document(**changes))).ok is ok


TOPO = "   GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X NV12 0-31 0 N/A\nGPU1 NV12 X 32-63 1 N/A\n"


def test_the_matrix_whose_cells_stand_apart_is_read() -> None:
    assert parse_nvidia_smi_topo(TOPO).numa_affinity == {"GPU0": "0", "GPU1": "1"}


@pytest.mark.parametrize(
    ("cells", "glued"), [("0-31 0 N/A", "0-310 N/A"), ("32-63 1 N/A", "32-63 1N/A"), ("0-31 0 N/A", "0-310N/A")]
)
def test_cells_that_grew_together_give_no_numa_node(cells: str, glued: str) -> None:
    with pytest.raises(ParseError, match="grew together"):
        parse_nvidia_smi_topo(TOPO.replace(cells, glued))


@pytest.mark.parametrize(
    "words", ["UD connection only possible in SEND verb", "Invalid MTU - 77 ", "Duplicated argument: -q "]
)
def test_whatever_perftest_says_of_an_option_is_a_bad_option(words: str) -> None:
    error = parse_perftest(f"ib_write_bw\n {words}\n Parser function exited with Error\n").error
    assert error is not None and error.kind == "bad_option"


SMI_Q = recorded_text("forms-of-real-sites-smi-q.txt")


def test_memory_of_mig_devices_of_driver_590_and_of_processes_under_windows() -> None:
    (gpu,) = report.parse_nvidia_smi_q(SMI_Q).gpus
    assert gpu.mig_devices is not None and gpu.processes is not None
    assert (gpu.mig_devices[0].memory_total_mib, gpu.mig_devices[0].memory_used_mib) == (64912, 17)
    assert gpu.processes[0].memory_mib is None
    assert gpu.processes[0].unavailable == {"memory_mib": "Not available in WDDM driver model"}


RAS_ERRORS = recorded_text("forms-of-real-sites-ras-errors.txt")


def test_the_errors_of_ncclras_alone() -> None:
    found = parse_ncclras(RAS_ERRORS)
    assert found.dead == (RasProcess("10.1.2.3", 3487, 5),)
    assert found.missing_ranks == (RasRank(21, "10.1.2.3", 5, "cf264af5"),)
    with pytest.raises(ParseError, match=r"line 6: .*cut"):
        parse_ncclras(RAS_ERRORS[: RAS_ERRORS.index(" managing")])


SOCKET, IB = "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>", "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB"


@pytest.mark.parametrize(
    ("lines", "network"),
    [
        (("a:11:12 [0]", SOCKET), "Socket"),
        (("a:11:12 [0]", SOCKET, "a:11:12 [0]", IB), "IB"),
        (("a:11:12 [0]", SOCKET, "b:21:22 [0]", IB), "Socket"),
        (("a:11:12 [0]", IB, "b:21:22 [0]", SOCKET), "IB"),
    ],
)
def test_nccl_2_4_lists_its_sockets_before_the_adapters_that_it_takes(lines: tuple[str, ...], network: str) -> None:
    text = "\n".join(" ".join(pair) for pair in zip(lines[::2], lines[1::2], strict=True))
    assert parse_nccl_log(text).network == network


@pytest.mark.parametrize(
    "stamp",
    [
        *("Mär 04 05:06:07", "févr. 04 05:06:07", "3月 04 05:06:07", "мар 04 05:06:07", "4월 04 05:06:07"),
        *("Mi 2026-03-04 05:06:07 CET", "mer. 2026-03-04 05:06:07 +0100", "三 2026-03-04 05:06:07 CST"),
    ],
)
def test_a_journal_in_another_language(stamp: str) -> None:
    lines = ("kernel: NVRM: Xid (PCI:0000:17:00): 79, pid=1234, GPU has fallen off the bus.", "kernel: eth0: ready")
    (event,) = parse_dmesg("".join(f"{stamp} node7 {line}\n" for line in lines)).events
    assert (event.time, event.code, event.pci) == (stamp, 79, "0000:17:00")
    assert parse_dmesg(f"{stamp} node7 {lines[1]}\n").events == ()


@pytest.mark.parametrize("note", ["-- No entries --", "-- Keine Einträge --", "-- Нет записей --"])
def test_a_journal_without_entries_in_any_language(note: str) -> None:
    with pytest.raises(ParseError, match="it printed no log: -- "):
        parse_dmesg(f"{note}\n")
    log = f"-- Logs begin at {note} --\nMär 04 05:06:07 node7 kernel: eth0: ready\n"
    assert parse_dmesg(log).events == ()
