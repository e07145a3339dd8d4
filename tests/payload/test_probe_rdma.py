"""probes/rdma as two nodes run it, over the loopback interface, with programs that stand in for perftest's.

They listen, connect and end as perftest's do, and print what was recorded of it: no RDMA is used here (test_rdma_probe
does that, between two emulated machines).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from nodectl.payload.probes.rdma import ports
from nodectl.probes.rdma.errors import Run, classify

PROBE = [sys.executable, "-B", str(payload_dir() / "run.py"), "probes.rdma.probe"]
RECORDED = Path(__file__).parents[1] / "fixtures" / "tools" / "perftest"
STAND_IN = f"""#!{sys.executable}
import os, socket, sys, time
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
address = words[-1] if words[words.index("-p") + 2:] and not words[-1].startswith("-") else ""
mode = words[words.index("-d") + 1]
if mode == "absent":
    sys.exit("IB device absent not found")
def show(side):
    lines = open(os.path.join({str(RECORDED)!r}, "ib_write_bw." + side + ".txt")).read().splitlines()
    print("\\n".join(lines[1:-1]), flush=True)
if address:
    with socket.create_connection((address, port)) as talk:
        if mode == "stuck":
            print(" remote address: LID 0000", flush=True)
            time.sleep(60)
        show("client")
else:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("", port))
        listening.listen()
        print("* Waiting for client to connect... *", flush=True)
        with listening.accept()[0] as talk:
            talk.recv(1)
            show("server")
"""


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment in which `ib_write_bw` is the stand-in."""
    program = tmp_path / "bin" / "ib_write_bw"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def case(mode: str = "rxe0", program: str = "ib_write_bw", **more: Any) -> dict[str, Any]:
    line = [program, "-d", mode, "-n", "300"]
    return {
        "client": line, "server": line, "client_cpus": [0], "server_cpus": [], "client_port": ["none0", 1],
        "server_port": ["none0", 1], "deadline_s": 20.0,
        "group": "0 write", **more,
    }  # fmt: skip


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts(output)]


class Server:
    """The end that serves, until the test is over."""

    def __init__(self, plan: Sequence[dict[str, Any]], env: dict[str, str]) -> None:
        self.plan, self.env = json.dumps(plan), env
        argv = [*PROBE, "serve", "--address=127.0.0.1", f"--plan={self.plan}"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        self.port = json.loads(texts(self.process.stdout.readline())[0])["port"]

    def lead(self) -> subprocess.Popen[str]:
        argv = [*PROBE, "measure", "--address=127.0.0.1", f"--port={self.port}", f"--plan={self.plan}"]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=self.env)

    def measure(self) -> tuple[int, list[dict[str, Any]]]:
        with self.lead() as leader:
            out, _ = leader.communicate(timeout=60)
        return leader.returncode, events(out)


@pytest.fixture
def serve(programs: dict[str, str]) -> Iterator[Any]:
    started: list[Server] = []

    def start(*plan: dict[str, Any]) -> Server:
        started.append(Server(plan, programs))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def test_all_that_both_ends_said_is_told(serve: Any) -> None:
    server = serve(case(), case(), case())
    status, said = server.measure()
    assert (status, [(each["event"], each["test"]) for each in said]) == (0, [("run", n) for n in range(3)])
    assert server.process.wait(10) == 0
    for each in said:
        client, served = each["client"], each["server"]
        assert (client["status"], served["status"], each["gone"]) == (0, 0, "")
        assert "41.21" in client["stdout"] and "41.21" in served["stdout"]
        assert client["argv"][-1] == "127.0.0.1" and served["argv"][:5] == client["argv"][:5]
        assert client["cpus"] == [0] and each["addresses"] == ["127.0.0.1", "127.0.0.1"]
        assert classify(Run(client["argv"], client["status"], client["stdout"])) is None
    # one hole in a firewall is enough: perftest serves where this program did
    assert said[0]["server"]["argv"][-1] == said[2]["server"]["argv"][-1]


def test_a_server_that_ends_at_once_says_why_and_no_client_is_run(serve: Any) -> None:
    status, said = serve(case(mode="absent"), case(), case(group="1 write")).measure()
    # the others of its group are left out
    assert (status, [each["test"] for each in said]) == (0, [0, 2])
    assert said[0]["client"] is None and "not found" in said[0]["server"]["stderr"]
    assert said[0]["server"]["status"] == 1 and said[1]["client"]["status"] == 0


def test_what_does_not_end_is_ended_and_its_words_are_kept(serve: Any) -> None:
    server = serve(case(mode="stuck", deadline_s=1.0))
    status, (said,) = server.measure()
    assert (status, said["client"]["timed_out"]) == (0, True)
    assert "remote address" in said["client"]["stdout"] and "Waiting" in said["server"]["stdout"]
    assert server.process.wait(10) == 0


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_an_end_is_killed(serve: Any, number: int) -> None:
    server = serve(case(mode="stuck"))
    with server.lead() as leader:
        until = time.monotonic() + 20
        while not (children(leader.pid) and children(server.process.pid)):
            assert time.monotonic() < until
            time.sleep(0.05)
        left = children(leader.pid) + children(server.process.pid)
        leader.send_signal(number)
        leader.communicate(timeout=20)
    # the other end notices, and ends its program too
    assert server.process.wait(20) == 1
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in left) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in left if Path(f"/proc/{pid}").exists()] == []


def test_a_port_on_which_nobody_listens_is_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        argv = [*PROBE, "measure", "--address=127.0.0.1", f"--port={unused.getsockname()[1]}", "--plan=[]"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    said = events(done.stdout)
    assert (done.returncode, said[0]["event"], said[0]["why"]) == (1, "unreached", "refused")


FILES = {
    "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "Ethernet",
    "gids/0": "fe80:0000:0000:0000:004e:0aff:fe40:0001", "gid_attrs/types/0": "IB/RoCE v1",
    "gid_attrs/ndevs/0": "eth4", "gids/3": "0000:0000:0000:0000:0000:ffff:0a40:0001",
    "gid_attrs/types/3": "RoCE v2", "gid_attrs/ndevs/3": "eth4", "gids/10": "0000:0000:0000:0000:0000:0000:0000:0000",
    "counters/port_rcv_packets": "12345",
}  # fmt: skip


# as a little-endian processor prints them; behind a router, of another interface, and on link
ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth4\t00000000\t0100400A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth4\t0000A8C0\t0100400A\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0
eth5\t0000410A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth4\t0000400A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""


def test_ports_as_sysfs_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "mlx5_3"
    for name, text in {**{f"ports/1/{name}": text for name, text in FILES.items()},
                       "device/numa_node": "1", "device/local_cpulist": "2-4,9"}.items():  # fmt: skip
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text + "\n")
    monkeypatch.setattr(ports, "INFINIBAND", tmp_path)
    routes = tmp_path / "route"
    routes.write_text(ROUTES)
    monkeypatch.setattr(ports, "ROUTES", routes)
    monkeypatch.setattr(ports, "query_verbs", lambda: {"mlx5_3/1": {"mtu": 4096, "mtu_max": 4096}})
    (port,) = ports.ports()
    expected = {
        "device": "mlx5_3", "port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "rate_gbit_s": 400.0,
        "link_layer": "Ethernet", "netdev": "eth4", "networks": ["10.64.0.0/16"], "numa_node": 1, "cpus": [2, 3, 4, 9],
        "verbs": {"mtu": 4096, "mtu_max": 4096},
    }  # fmt: skip
    assert {name: port[name] for name in expected} == expected
    assert [(each["index"], each["type"], each["netdev"]) for each in port["gids"]] == [
        (0, "IB/RoCE v1", "eth4"), (3, "RoCE v2", "eth4"),
    ]  # fmt: skip
    assert ports.packets("mlx5_3", 1) == 12345 and ports.packets("mlx5_9", 1) is None
    assert ports.state_of("mlx5_3", 1)["state"] == "ACTIVE"


@pytest.mark.parametrize(
    ("program", "expected"),
    [("import time; time.sleep(9)", ports.UNASKED), ("print('null')", None), ("1/0", ports.UNASKED)],
)
def test_a_device_that_hangs_or_breaks_its_library_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: object
) -> None:
    stand_in = tmp_path / "verbs.py"
    stand_in.write_text(program)
    monkeypatch.setattr(ports, "VERBS", stand_in)
    monkeypatch.setattr(ports, "VERBS_S", 1.0)
    assert ports.query_verbs() is expected


def test_look_answers_on_a_machine_without_any_of_it() -> None:
    argv = [*PROBE, "look", "--programs=ib_no_such_bw"]
    (said,) = events(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert said["programs"] == {} and set(said) == {"event", "ports", "adapters", "programs", "memlock", "gpus"}
    assert set(said["memlock"]) == {"soft", "hard", "exempt"}
