"""perftest: recordings between two virtual machines, and forms of other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.perftest import BwRow, LatRow, Perftest, parse_perftest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "perftest"
MIB_GBIT = 2**20 * 8 / 1e9
HEADER_GBIT = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
HEADER_LAT = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] \n"
)


def read(name: str) -> Perftest:
    return parse_perftest((FIXTURES / name).read_text())


def test_every_value_of_a_bandwidth_run() -> None:
    assert read("ib_write_bw.client.txt") == Perftest(
        test="ib_write_bw",
        device="rxe0",
        transport="IB",
        link_type="Ethernet",
        mtu_bytes=1024,
        qps=1,
        connection="RC",
        gid_index=1,
        bidirectional=False,
        rows=(BwRow(65536, 300, 41.78 * MIB_GBIT, 41.21 * MIB_GBIT, 0.000659),),
        error=None,
    )


def test_every_value_of_a_latency_run() -> None:
    run = read("ib_write_lat.client.txt")
    assert (run.test, run.qps, run.error) == ("ib_write_lat", 1, None)
    assert run.rows == (LatRow(2, 200, 217.47, 10516.91, 2023.53, 2336.19, 1923.60, 8675.73, 10516.91),)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ib_write_bw.server.txt", ("ib_write_bw", 1, BwRow(65536, 300, 41.78 * MIB_GBIT, 41.21 * MIB_GBIT, 0.000659))),
        ("ib_write_bw.dur.client.txt", ("ib_write_bw", 1, BwRow(65536, 1919, None, 0.34, 0.000639))),
        ("ib_write_bw.q4.client.txt", ("ib_write_bw", 4, BwRow(65536, 400, 0.45, 0.44, 0.00083))),
        ("ib_write_bw.bidir.client.txt", ("ib_write_bw", 1, BwRow(65536, 200, 0.252118, 0.198492, 0.000379))),
        ("ib_send_bw.client.txt", ("ib_send_bw", 1, BwRow(65536, 300, 0.061285, 0.052132, 0.000099))),
        (
            "ib_read_lat.client.txt",
            ("ib_read_lat", 1, LatRow(2, 200, 212.56, 1718.82, 348.4, 363.73, 107.89, 1001.69, 1718.82)),
        ),
        (
            "ib_write_lat.dur.client.txt",
            ("ib_write_lat", 1, LatRow(2, 724, None, None, None, 2075.17, None, None, None, 240.94)),
        ),
        (
            "ib_write_lat.hist.client.txt",
            ("ib_write_lat", 1, LatRow(2, 20, 2079.36, 6115.66, 3976.21, 3697.55, 801.51, 6115.66, 6115.66)),
        ),
    ],
)
def test_kinds_of_runs(name: str, expected: tuple[str, int, object]) -> None:
    run = read(name)
    assert (run.test, run.qps, *run.rows) == expected
    assert run.bidirectional == ("bidir" in name)
    assert run.error is None


def test_all_sizes() -> None:
    rows = read("ib_write_bw.all.client.txt").rows
    assert [row.size_bytes for row in rows] == [2**power for power in range(1, 24)]
    assert rows[12] == BwRow(8192, 5, 0.16, 0.14, 0.002115)


@pytest.mark.parametrize("name", ["ib_write_bw.json", "ib_write_bw.json-gbits", "ib_write_lat.json"])
def test_the_file_of_out_json_says_what_the_text_says(name: str) -> None:
    by_file, by_text = read(f"{name}.client.json"), read(f"{name}.client.txt")
    assert by_file.rows
    assert by_file == by_text


def test_out_json_that_is_valid_with_several_sizes() -> None:
    text = (
        '{"test_info": {"test": "Send_Bidirectional_BW_Test", "Device": "mlx5_0"}, "results": [\n'
        '{"MsgSize": 8, "n_iterations": 100, "BW_peak": 0.00, "BW_average": 0.01, "MsgRate": 0.15},\n'
        '{"MsgSize": 65536, "n_iterations": 100, "BW_peak": 90.1, "BW_average": 89.9, "MsgRate": 0.171471}]}'
    )
    run = parse_perftest(text)
    assert (run.test, run.device, run.bidirectional) == ("ib_send_bw", "mlx5_0", True)
    assert run.rows == (BwRow(8, 100, None, 0.01, 0.15), BwRow(65536, 100, 90.1, 89.9, 0.171471))


@pytest.mark.parametrize(
    ("header", "row", "found"),
    [
        (HEADER_GBIT.replace("Gb", "MiB"), " 4096 5 9.00 8.00 0.1", BwRow(4096, 5, 9 * MIB_GBIT, 8 * MIB_GBIT, 0.1)),
        (HEADER_GBIT.replace("   MsgRate[Mpps]", ""), " 4096 5 9.50 9.25", BwRow(4096, 5, 9.5, 9.25, None)),
        (HEADER_GBIT[:-1] + "    CPU_Util[%]\n", " 4096 5 9.50 9.25 0.1\t    3.20", BwRow(4096, 5, 9.5, 9.25, 0.1)),
        (HEADER_GBIT.replace("#it", "#sl      #it"), " 4096 3 5 9.50 9.25 0.1", BwRow(4096, 5, 9.5, 9.25, 0.1, 3)),
        (
            HEADER_GBIT[:-1] + "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]\n",
            " 4096 5 9.50 9.25 0.1 4.75 0.05 4.50 0.05",
            BwRow(4096, 5, 9.5, 9.25, 0.1),
        ),
        (HEADER_GBIT, "4096 5 -nan 9.25 nan", BwRow(4096, 5, None, 9.25, None)),
        (
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n",
            " 2       1000          1.25           9.50         1.50",
            LatRow(2, 1000, 1.25, 9.5, 1.5, None, None, None, None),
        ),
        (
            HEADER_LAT,
            " 2       1000          453.06         37330.73     692.41            928.05     2465.901216.65   37330.73",
            LatRow(2, 1000, 453.06, 37330.73, 692.41, 928.05, 2465.90, 1216.65, 37330.73),
        ),
        (" ".join(HEADER_LAT.split()) + "\n", "2 9 1.0 2.0 3.0 4.0 5.0 6.0 7.0", LatRow(2, 9, 1, 2, 3, 4, 5, 6, 7)),
    ],
    ids=["MiB", "no rate", "CPU", "QoS", "per port", "nan", "old latency", "glued", "single blanks"],
)
def test_tables_of_other_versions(header: str, row: str, found: object) -> None:
    assert parse_perftest(header + row + "\n").rows == (found,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("bash: ib_write_bw: command not found", "line 1.*no run of perftest"),
        ((FIXTURES / "ib_write_bw.help.txt").read_text(), "the program's help"),
        ((FIXTURES / "ib_write_bw.output.client.txt").read_text(), "without --output"),
        ((FIXTURES / "err.no-host.server.txt").read_text(), "no run of perftest"),
        (HEADER_GBIT + " 65536      5000             92.42", "line 2: ' 65536.*columns"),
        (HEADER_GBIT + " 65536", "line 2.*columns"),
        (HEADER_GBIT + " 65536 5000 92.42 92.4.0 0.17", "line 2.*columns"),
        (HEADER_GBIT + " 65536 5000 92.42 92.40 0.17 7", "line 2.*columns"),
        (HEADER_GBIT + " 65536 5000 92.42 92.40 0.17x", "line 2.*columns"),
        (HEADER_GBIT + " 65536 50.5 92.42 92.40 0.17", "line 2.*columns"),
        (HEADER_LAT + " 2 1000 1.42 1.93 1.47 1.47 0.00 1.57", "line 2.*columns"),
        (" #bytes     #iterations    BW pe", "line 1.*header is cut"),
        (HEADER_LAT.replace("usec", "cycles"), "line 1.*cycles"),
        (HEADER_GBIT.replace("Gb/sec", "parsec"), "line 1.*parsec"),
        ("{\ntest_info: {\ntest: Send_BW_Test,\n},\nresults: {\nMsgSize: 65536,\nn_iter", "line 6.*cut"),
        ("{\nresults: {\nMsgSize: 65536,\nn_iterations: 5x,\n", "line 4.*no number"),
        ("results: {\nMsgSize: 8,\nn_iterations: 5,\nBW_peak: 1,\nBW_average: 1.5,\nMsgRate: 0.0,\n}", "no unit"),
        ("Mtu : big\nSend BW Test\n", "line 1.*mtu 'big'"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_perftest(text)


@pytest.mark.parametrize(
    ("more", "values", "average", "rate"),
    [
        ("MsgRate[Mpps]", "-12.30  -0.000023", None, None),
        ("BW min[Gb/sec]   MsgRate[Mpps]", "71.20  3.5  0.25", 71.2, 0.25),
        ("MsgRate[Mpps]   CPU_Util[%]", "71.20  0.25  12.5", 71.2, 0.25),
    ],
)
def test_columns_and_figures_of_odd_versions(more: str, values: str, average: float | None, rate: float | None) -> None:
    (row,) = parse_perftest(
        f" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   {more}\n 65536  5000  0.00  {values}\n"
    ).rows
    assert isinstance(row, BwRow)
    assert (row.peak_gbit_s, row.average_gbit_s, row.message_rate_mpps) == (None, average, rate)


ERRORS = {
    "bad-gid": ("bad_gid", "Failed to modify QP 41 to RTR"),
    "bad-hostname": ("unresolved", "Temporary failure in name resolution for no-such-host.invalid:18515"),
    "bad-option": ("bad_option", "ib_write_bw: unrecognized option '--no-such-option'"),
    "link-cut-midrun": ("peer_lost", "65536      0                0.00               0.00   \t\t   0.000000"),
    "no-host": ("no_server", "Couldn't connect to 10.99.0.99:18515"),
    "no-server": ("no_server", "Couldn't connect to 10.99.0.11:18515"),
    "server-killed-midrun": ("peer_lost", "ethernet_read_keys: Couldn't read remote address"),
    "size-mismatch": ("mismatch", "Failed status 10: wr_id 0 syndrom 0x0"),
    "test-mismatch": ("mismatch", "Failed status 9: wr_id 0 syndrom 0x0"),
    "wrong-device": ("no_device", "IB device mlx5_0 not found"),
}


@pytest.mark.parametrize("name", [*(f"{name}.client" for name in ERRORS), "no-device", "port-down"])
def test_why_a_client_failed(name: str) -> None:
    alone = {
        "no-device": ("no_device", "No IB devices found"),
        "port-down": ("port_down", "Port number 1 state is Down"),
    }
    error = read(f"err.{name}.txt").error
    assert error
    assert (error.kind, error.text) == (alone | ERRORS)[name.removesuffix(".client")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("err.bad-gid.server.txt", "bad_gid"),
        ("err.link-cut-midrun.server.txt", "peer_lost"),
        ("err.nobody-connects.server.txt", "timeout"),
        ("err.port-busy.server.txt", "port_busy"),
        ("err.size-mismatch.server.txt", "peer_lost"),
        ("err.test-mismatch.server.txt", "peer_lost"),
        ("ib_write_lat.all.client.txt", "timeout"),
    ],
)
def test_why_a_server_failed(name: str, kind: str) -> None:
    error = read(name).error
    assert error
    assert error.kind == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Couldn't allocate MR\nfailed to create mr\nFailed to create MR\nSegmentation fault (core dumped)", "memlock"),
        ("Failed to modify QP to RTS\n Unable to Connect the HCA's through the link", "other"),
        (" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n scnt=128, ccnt=0", "peer_lost"),
        ("Completion with error at client\nFailed status 4: wr_id 0 syndrom 0x51", "other"),
        ("RDMA CM event error:\nEvent: RDMA_CM_EVENT_REJECTED; error: 8.", "refused"),
        ("Event: RDMA_CM_EVENT_ADDR_ERROR; error: -19.", "unresolved"),
        ("Couldn't connect to 192.0.2.1:18515: Connection refused", "refused"),
        ("Couldn't connect to 192.0.2.1:18515: Connection timed out", "timeout"),
        (" Iterations number should be between 5 and 100000000", "bad_option"),
        ("Couldn't get context for the device", "other"),
        (" Found Incompatibility issue with GID types.\n Please Try to use a different IP version.", "bad_gid"),
        ("rdma_bind_addr failed", "other"),
        ("Unexpected CM event bl blka 8\n Unable to perform rdma_client function", "refused"),
        ("Failed status 10 (remote access error): wr_id 0", "mismatch"),
        ("Completion with error at client\n transport retry counter exceeded", "peer_lost"),
        (HEADER_GBIT + " 65536      0    0.00    0.00    0.000000\n", "peer_lost"),
        (
            HEADER_GBIT + " 2      5    0.01    0.01    0.1\n Failed to complete run_iter_bw function successfully",
            "other",
        ),
    ],
)
def test_kinds_of_failures(text: str, kind: str) -> None:
    error = parse_perftest(text).error
    assert error
    assert error.kind == kind


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Unable to determine the CPU's frequency\n", ""),
        ("", "Failed to disconnect RDMA CM connection.\nERRNO: Connection reset by peer.\n"),
    ],
)
def test_a_mere_complaint_in_a_run_with_figures_is_no_failure(before: str, after: str) -> None:
    run = parse_perftest(f"{before}{HEADER_GBIT} 2   5    0.02    0.01    0.1\n{after}")
    assert (run.error, len(run.rows)) == (None, 1)
    assert before == "" or parse_perftest(before).error is not None


def test_what_sudo_says_of_the_hosts_name_is_not_why_a_run_failed() -> None:
    warning = "sudo: unable to resolve host gpu01: Name or service not known\n"
    good = (FIXTURES / "ib_write_bw.client.txt").read_text()
    assert parse_perftest(warning + good) == parse_perftest(good)
    failed = parse_perftest(warning + "Couldn't connect to 10.0.0.2:18515\n").error
    assert failed is not None
    assert failed.kind == "no_server"
