"""`nodectl probe rdma` between two emulated machines with RDMA in software: its figures are perftest's own.

The shape and the errors count; the speed is the emulation's. GPU memory is not tried: there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from nodectl.facts.parsers.rdma.perftest import BwRow, LatRow, parse_perftest
from tests.booted.conftest import Nodectl, Ran
from tests.booted.fleet import Fleet

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(2400)]

NAMES = ("vm01", "vm02")
PORT = 18515
INSTALL = "apt-get install -y -qq perftest rdma-core ibverbs-utils ibverbs-providers"
ADD = "rdma link add rxe0 type rxe netdev eth0"
SHORT = ("--operations", "write", "--repetitions", "1", "--message-size", "64KiB", "--port", str(PORT))
DROP = (
    "modprobe -a cls_u32 act_gact sch_ingress && tc qdisc add dev eth0 ingress && tc filter add dev eth0 parent ffff: "
    "protocol ip u32 match ip protocol {protocol} 0xff match ip dport {port} 0xffff action drop"
)
TCP, UDP, ROCE = 6, 17, 4791


@dataclass(frozen=True, slots=True)
class Pair:
    """Both machines, each with a software device, and nodectl's probe on them."""

    fleet: Fleet
    run_nodectl: Nodectl

    def probe(self, *options: str, login: str = "root") -> Ran:
        inventory = self.fleet.inventory(dict.fromkeys(NAMES, login))
        return self.run_nodectl(inventory, "probe", "rdma", *options)

    @contextmanager
    def changed(self, do: str, undo: str) -> Iterator[None]:
        """The second machine is otherwise for a while."""
        self.fleet["vm02"].run(do)
        try:
            yield
        finally:
            self.fleet["vm02"].run(undo)


@pytest.fixture(scope="module")
def pair(vms: Fleet, run_nodectl: Nodectl) -> Pair:
    def prepare(name: str) -> None:
        vms[name].run(INSTALL, timeout_s=900)
        vms[name].run(f"modprobe rdma_rxe && {ADD}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(prepare, NAMES))
    return Pair(vms, run_nodectl)


def findings(ran: Ran) -> list[tuple[str, str, list[str]]]:
    return [(each["subject"], each["status"], each["hosts"]) for each in ran.document["findings"]]


def row_of(printed: str) -> BwRow | LatRow:
    (row,) = parse_perftest(f"                    RDMA_Write BW Test\n{printed}\n").rows
    return row


def test_every_figure_is_what_perftest_printed(pair: Pair) -> None:
    ran = pair.probe("--iterations", "100", "--repetitions", "2", "--message-size", "32KiB")
    assert (ran.status, findings(ran)) == (0, []), str(ran)
    found: list[dict[str, Any]] = ran.document["measurements"]
    assert [(each["conditions"]["operation"], each["direction"]) for each in found] == [
        ("write", "vm01 -> vm02"), ("write", "vm02 -> vm01"), ("write_lat", "vm01 -> vm02"),
        ("read", "vm02 -> vm01"), ("read", "vm01 -> vm02"), ("send", "vm01 -> vm02"), ("send", "vm02 -> vm01"),
    ]  # fmt: skip
    for each in found:
        conditions = each["conditions"]
        rows = [row_of(text) for text in conditions["printed"]]
        is_bw = conditions["operation"] != "write_lat"
        values = [(row.average_gbit_s if isinstance(row, BwRow) else row.typical_us) or 0.0 for row in rows]
        assert conditions["values"] == values and min(values) > 0
        assert each["value"] == sum(values) / 2 and each["unit"] == ("Gb/s" if is_bw else "us")
        # to the last digit: the words are in the row
        for value, text in zip(values, conditions["printed"], strict=True):
            assert value in [float(word) for word in text.splitlines()[1].split()]
        assert conditions["iterations"] == [100, 100] and conditions["mtu"] == [1024, 1024]
        assert conditions["device"] == ["rxe0/1", "rxe0/1"] and conditions["gid_index"] == [1, 1]
    for name in NAMES:
        left = pair.fleet[name].run("pgrep -x 'ib_(write|read|send)_(bw|lat)'", check=False)
        assert left.status == 1, f"perftest still runs on {name}: {left}"


def test_each_host_by_itself(pair: Pair) -> None:
    """One software device a host: it sends to itself."""
    ran = pair.probe("--scope", "node", "--iterations", "100", "--repetitions", "2", "--message-size", "32KiB")
    # of two hosts whose emulation is not alike both are named, and neither failed
    assert ran.status == 0 and {status for _, status, _ in findings(ran)} <= {"warning"}, str(ran)
    found: list[dict[str, Any]] = ran.document["measurements"]
    assert sorted((each["conditions"]["operation"], each["direction"]) for each in found) == [
        (operation, f"{name} rxe0/1") for operation in ("write", "write_lat") for name in NAMES
    ]
    for each in found:
        assert each["conditions"]["way"] == "loopback" and min(each["conditions"]["values"]) > 0


def test_devices_of_a_host_that_do_not_reach_each_other(pair: Pair) -> None:
    """The kernel hands a packet for an address of its own to no other software device: each is well by itself."""
    add = "modprobe dummy && " + " && ".join(
        f"ip link add d{n} type dummy && ip addr add 198.51.100.{n}/24 dev d{n} && ip link set d{n} up"
        f" && rdma link add rxe{n} type rxe netdev d{n}"
        for n in (1, 2)
    )
    remove = "; ".join(f"rdma link delete rxe{n}; ip link delete d{n}" for n in (1, 2))
    alone = Pair(pair.fleet, lambda inventory, *argv: pair.run_nodectl(inventory, "-l", "vm02", *argv))
    with pair.changed(add, remove):
        ran = alone.probe("--scope", "node", "--device", "rxe1,rxe2", *SHORT[:4], "--iterations", "50")
    assert ran.status == 0, str(ran)
    assert {each["direction"] for each in ran.document["measurements"]} == {"vm02 rxe1/1", "vm02 rxe2/1"}, str(ran)
    ((_, status, hosts),) = [found for found in findings(ran) if found[0] in ("timeout", "link_cut")]
    assert (status, hosts) == ("warning", ["vm02"])


# what is done to vm02, how it is taken back, what is asked, as whom, and the finding
LIVE: dict[str, tuple[str, str, tuple[str, ...], str, tuple[str, str, list[str]]]] = {
    "no device": ("rdma link delete rxe0", ADD, ("--iterations", "50"), "root", ("no_device", "failed", ["vm02"])),
    "no permission": (
        "chmod 600 /dev/infiniband/uverbs0", "chmod 666 /dev/infiniband/uverbs0", ("--iterations", "50"), "auto",
        ("no_permission", "failed", ["vm02"]),
    ),
    "memlock": (
        "echo 'auto - memlock 64' > /etc/security/limits.d/low.conf", "rm /etc/security/limits.d/low.conf",
        ("--iterations", "50"), "auto", ("memlock", "failed", ["vm02"]),
    ),
    "firewall for TCP": (
        DROP.format(protocol=TCP, port=PORT), "tc qdisc del dev eth0 ingress", ("--iterations", "50"), "root",
        ("firewall", "failed", ["vm01", "vm02"]),
    ),
    "firewall for RoCE": (
        DROP.format(protocol=UDP, port=ROCE), "tc qdisc del dev eth0 ingress", ("--duration", "3"), "root",
        ("firewall", "failed", ["vm01", "vm02"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIVE)
def test_what_is_wrong_is_named(pair: Pair, name: str) -> None:
    do, undo, options, login, expected = LIVE[name]
    with pair.changed(do, undo):
        ran = pair.probe(*SHORT, *options, login=login)
    assert (ran.status, findings(ran)[:1]) == (1, [expected]), str(ran)


def test_a_gid_that_is_not_there(pair: Pair) -> None:
    ran = pair.probe(*SHORT, "--gid-index", "7")
    assert (ran.status, findings(ran)) == (1, [("bad_gid", "failed", [name]) for name in NAMES]), str(ran)


def test_a_port_that_another_program_holds(pair: Pair) -> None:
    with pair.changed(
        f"systemd-run --quiet --collect --unit=holder ib_write_bw -d rxe0 -p {PORT}", "systemctl stop holder"
    ):
        pair.fleet["vm02"].wait_for(listens(pair.fleet), "listening", 120)
        ran = pair.probe(*SHORT, "--iterations", "50")
    assert (ran.status, findings(ran)) == (1, [("port_busy", "failed", ["vm02"])]), str(ran)


def listens(fleet: Fleet) -> Callable[[], bool]:
    return lambda: f":{PORT} " in fleet["vm02"].out("ss -tln")


def test_a_link_that_is_cut_in_the_middle(pair: Pair) -> None:
    """perftest may end with exit status 0 then: it is a failure all the same, and the pair works again afterwards."""
    begun = "until pgrep -x ib_write_bw; do sleep 0.3; done; sleep 7"
    cut = f"{begun}; ip link set eth0 down; sleep 60; ip link set eth0 up"
    pair.fleet["vm02"].run(f"systemd-run --quiet --collect --unit=cutter sh -c '{cut}'")
    ran = pair.probe(*SHORT, "--duration", "20")
    assert ran.status == 1, str(ran)
    assert ("link_cut", "failed", ["vm01", "vm02"]) in findings(ran), str(ran)
    assert ran.document["measurements"] == [], str(ran)
    vm02 = pair.fleet["vm02"]
    vm02.wait_for(lambda: vm02.run("ip link show eth0 up", check=False).status == 0, "its link again", 180)
    # its GIDs went with the link, and come back with its address
    vm02.run("ifdown --force eth0; ifup eth0", check=False)
    # its sshd may not have noticed yet that the probe before is gone, and hold the lock for it
    after = pair.probe(*SHORT, "--iterations", "50", "--force")
    assert after.status == 0 and len(after.document["measurements"]) == 2, str(after)
