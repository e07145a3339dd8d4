"""Why perftest's runs fail: recordings of each failure between two virtual machines, and texts of other versions."""

import pytest

from nodectl.parsers.rdma.perftest import parse_perftest
from tests.parsers.test_perftest import HEADER_GBIT, read

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


@pytest.mark.parametrize("name", ["iters-mismatch", "no-device-arg-two-sided"])
@pytest.mark.parametrize("side", ["client", "server"])
def test_odd_options_that_perftest_accepts(name: str, side: str) -> None:
    run = read(f"err.{name}.{side}.txt")
    assert run.error is None
    assert [row.iterations for row in run.rows] == [100]


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
