"""Why an RDMA test failed: every recording between two virtual machines, alone and beside its other end."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.probes.rdma.errors import Run, classify, kinds
from tests.probes.rdma_samples import FIXTURES, SAMPLES, partner_of, recorded, runs

# what the recording says by itself, and beside its other end; `-` is a run without fault
EXPECTED = {
    "bad-gid.client": "bad_gid bad_gid",
    "bad-gid.server": "bad_gid bad_gid",
    "bad-hostname.client": "unresolved unresolved",
    "bad-option.client": "bad_option bad_option",
    # perftest takes different counts on both ends without a word, and the probe gives both the same
    "iters-mismatch.client": "- -",
    "iters-mismatch.server": "- -",
    # exit status 0, no iteration
    "link-cut-midrun.client": "link_cut link_cut",
    "link-cut-midrun.server": "link_cut link_cut",
    "no-device-arg-two-sided.client": "- -",
    "no-device-arg-two-sided.server": "- -",
    "no-device": "no_device",
    # the text is that of no-server: only the errno of a connection of one's own tells them apart
    "no-host.client": "no_server no_server",
    "no-server.client": "no_server no_server",
    "nobody-connects.server": "no_client",
    "port-busy.server": "port_busy",
    "port-down": "port_down",
    "server-killed-midrun.client": "peer_lost peer_lost",
    "server-killed-midrun.server": "killed killed",
    "size-mismatch.client": "mismatch mismatch",
    "size-mismatch.server": "peer_lost mismatch",
    "test-mismatch.client": "mismatch mismatch",
    "test-mismatch.server": "peer_lost mismatch",
    "wrong-device.client": "no_device no_device",
}
# latency of all sizes did not end in the time that the recording gave it
UNENDED = {"ib_write_lat.all.client": "timeout timeout", "ib_write_lat.all.server": "no_client timeout"}
FILES = [*runs(FIXTURES), *runs(SAMPLES)]


def kind(run: Run, partner: Run | None = None) -> str:
    found = classify(run, partner)
    return found.kind if found else "-"


@pytest.mark.parametrize("path", FILES, ids=lambda each: f"{each.parent.name}-{each.name}")
def test_each_recording_is_of_its_kind(path: Path) -> None:
    name = path.name.removesuffix(".txt")
    other = partner_of(path)
    told = (EXPECTED | UNENDED)[name.removeprefix("err.")] if name.startswith("err.") or name in UNENDED else "- -"
    alone, together = (told.split() * 2)[:2]
    run = recorded(path)
    assert kind(run) == alone
    if other is not None:
        assert kind(run, recorded(other)) == together


def test_every_kind_has_a_remedy() -> None:
    told = {word for line in (EXPECTED | UNENDED).values() for word in line.split() if word != "-"}
    assert told <= set(kinds()) and all(each.remedy for each in kinds().values())


CLIENT, SERVER = ("ib_write_bw", "-d", "mlx5_0", "192.0.2.1"), ("ib_write_bw", "-d", "mlx5_0")
MET = " Dual-port       : OFF\t\tDevice         : mlx5_0\n remote address: LID 0000 QPN 0x0032 PSN 0xeb4976\n"
WAITS = "* Waiting for client to connect... *\n"


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (Run(CLIENT, 1, "", "Couldn't allocate MR\nfailed to create mr\n"), "memlock"),
        (Run((*CLIENT[:-1], "--use_cuda=0", "192.0.2.1"), 1, "", "Couldn't allocate MR\n"), "gpu_memory"),
        (Run(CLIENT, 1, "", "Couldn't get context for the device\n"), "no_permission"),
        (Run(CLIENT, 1, MET, " Failed status 12: wr_id 0 syndrom 0x81\n"), "link_cut"),
        (Run(CLIENT, 1, MET, " Found Incompatibility issue with GID types.\n"), "bad_gid"),
        (Run(CLIENT, 1, "", "Couldn't connect to 192.0.2.1:18515: No route to host\n"), "unreachable"),
        (Run(CLIENT, 127, "", "ib_write_bw: No such file or directory\n"), "not_installed"),
        (Run(CLIENT, -9, MET), "killed"),
        (Run(CLIENT, -15, MET, timed_out=True), "timeout"),
    ],
)  # fmt: skip
def test_reasons_that_were_not_recorded(run: Run, expected: str) -> None:
    assert kind(run) == expected


@pytest.mark.parametrize(
    ("client", "listens", "expected"),
    [
        (Run(CLIENT, 1, "", "Couldn't connect to 192.0.2.1:18515\n"), True, "firewall"),
        (Run(CLIENT, 1, "", "Couldn't connect to 192.0.2.1:18515\n"), False, "no_server"),
        (Run(CLIENT, 1, "", "Couldn't connect to 192.0.2.1:18515\n"), None, "firewall"),
        # dropped packets: no answer at all
        (Run(CLIENT, -15, "", timed_out=True), None, "firewall"),
        # it had found its server: whatever then failed, no firewall keeps TCP back
        (Run(CLIENT, -15, MET, timed_out=True), None, "timeout"),
    ],
)
def test_a_server_that_waited_in_vain_leaves_a_firewall(client: Run, listens: bool | None, expected: str) -> None:
    waiting = Run(SERVER, -15, WAITS, timed_out=True, is_server=True)
    found = classify(client, waiting, server_listens=listens)
    assert found is not None and found.kind == expected
