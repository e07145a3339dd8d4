"""perftest's two ends: `serve` and `measure` run a plan of tests together, on two hosts or on one.

`look` says what there is. Who measures leads: for each test of the plan one end starts perftest's server and the other
its client, as the plan says, and both ends' outputs are told by the one who measures.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import time
from typing import Any, Dict, List, Optional, Sequence

from ...common import program, sockets
from ...common.events import say
from ...common.sockets import LISTEN
from ...jobs.syscalls import die_with_parent
from ..tcp import port_states, reserve
from . import ports

HELP_S = 20.0
MOST_BYTES = 1 << 18
POLL_S = 0.02
# what a program that was told to end may still take
END_S = 2.0
# of interest: what not every version or build has
OPTIONS = ("--use_cuda", "--use_cuda_dmabuf", "--report_gbits")


def output_of(argv: Sequence[str]) -> str:
    """Return what a program prints on both channels."""
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HELP_S
    )
    return done.stdout.decode(errors="replace")


def installed(names: Sequence[str]) -> Dict[str, Any]:
    """Return each program's version and those of OPTIONS that it has; nothing of one that is not installed."""
    programs = {}
    for name in names:
        if shutil.which(name):
            version = re.search(r"Version:?\s*(\S+)", output_of([name, "--version"]))
            shown = set(re.findall(r"--[\w-]+", output_of([name, "--help"])))
            options = [option for option in OPTIONS if option in shown]
            programs[name] = {"version": version.group(1) if version else None, "options": options}
    return programs


def open_file() -> Any:
    """One that nobody else sees, and that goes when it is closed."""
    return os.fdopen(os.memfd_create("perftest"), "w+b")


class Program:
    """A run that has started; its output goes to files, so that nothing is lost when it is killed."""

    def __init__(self, argv: Sequence[str], cpus: Sequence[int]) -> None:
        """`cpus` are those to run on, none for all; ones that this process may not use are left out."""
        self.argv = list(argv)
        self._out, self._err = open_file(), open_file()
        self.cpus = sorted(set(cpus) & os.sched_getaffinity(0))
        self.timed_out = False
        # a pipe or a file is buffered as a whole, and what a killed program had to say would be lost
        lines = ["stdbuf", "-oL"] if shutil.which("stdbuf") else []
        self._process = subprocess.Popen(
            [*lines, *self.argv],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID"),
            preexec_fn=self._prepare,
        )

    def _prepare(self) -> None:
        die_with_parent()
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)

    def running(self) -> bool:
        """Return whether it has not ended yet."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> None:
        """Wait until it ends by itself, and end it after this time."""
        until = time.monotonic() + timeout_s
        while self.running() and time.monotonic() < until:
            time.sleep(POLL_S)
        self.timed_out = self.running()
        self.end()

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.running():
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def outcome(self) -> Dict[str, Any]:
        """Its exit status and all that it printed; nothing of it stays, so this may be asked once."""
        outcome = {
            "argv": self.argv,
            "status": self._process.returncode,
            "stdout": content(self._out),
            "stderr": content(self._err),
            "timed_out": self.timed_out,
            "cpus": self.cpus,
        }
        self.clear()
        return outcome

    def clear(self) -> None:
        """End it, and remove all that it left."""
        self.end()
        self._out.close()
        self._err.close()


def content(file: Any) -> str:
    """Return the beginning of a file that a program has written."""
    file.seek(0)
    data: bytes = file.read(MOST_BYTES)
    return data.decode(errors="replace")


def not_started(argv: Sequence[str], error: OSError) -> Dict[str, Any]:
    """Return the outcome of a program that could not be started."""
    complaint = "%s: %s" % (argv[0], error.strerror)
    return {
        "argv": list(argv),
        "status": 127,
        "stdout": "",
        "stderr": complaint,
        "timed_out": False,
        "cpus": [],
    }


LISTEN_S = 15.0
# what a server may take to end after its client has
FINISH_S = 4.0
ATTEMPTS = 3
BUSY = "Couldn't listen to port"


def has_failed(run: Optional[Dict[str, Any]]) -> bool:
    """Return whether it was not started, was ended, or ended with an error."""
    return run is None or bool(run["status"]) or run["timed_out"]


class Ends:
    """One end's part of the plan, test by test."""

    def __init__(self, plan: List[Dict[str, Any]], address: str, port: int) -> None:
        self.plan, self.address, self.port = plan, address, port
        self._server: Optional[Program] = None
        self._client: Optional[Program] = None
        self._received: Optional[int] = None

    def close(self) -> None:
        """End what runs, if anything does."""
        for running in (self._client, self._server):
            if running is not None:
                running.clear()

    def start_server(self, number: int) -> Dict[str, Any]:
        """{"port"} where it listens, {"run"} where it ended instead."""
        test = self.plan[number]
        self._received = ports.packets(*test["server_port"])
        for attempt in range(ATTEMPTS):
            port = self.port or reserve(self.address, 0)
            argv = [*test["server"], "-p", str(port)]
            try:
                server = Program(argv, test["server_cpus"])
            except OSError as error:
                return {"run": not_started(argv, error)}
            until = time.monotonic() + LISTEN_S
            while LISTEN not in port_states(port) and server.running() and time.monotonic() < until:
                time.sleep(POLL_S)
            if server.running():
                self._server = server
                return {"port": port}
            run = server.outcome()
            if BUSY not in run["stderr"] + run["stdout"] or attempt + 1 == ATTEMPTS:
                break
            time.sleep(0.5)
        return {"run": self._seen(run, test, "server")}

    def finish_server(self, number: int) -> Dict[str, Any]:
        """Return what became of it; it has ended then."""
        server, self._server = self._server, None
        if server is None:
            raise RuntimeError("no server was started for test %d" % number)
        server.wait(FINISH_S)
        return self._seen(server.outcome(), self.plan[number], "server")

    def client(self, number: int, address: str, port: int) -> Dict[str, Any]:
        """Run it to its end, or to its deadline; what became of it."""
        test = self.plan[number]
        self._received = ports.packets(*test["client_port"])
        argv = [*test["client"], "-p", str(port), address]
        try:
            client = self._client = Program(argv, test["client_cpus"])
        except OSError as error:
            return not_started(argv, error)
        try:
            client.wait(test["deadline_s"])
            return self._seen(client.outcome(), test, "client")
        finally:
            client.clear()
            self._client = None

    def _seen(self, run: Dict[str, Any], test: Dict[str, Any], role: str) -> Dict[str, Any]:
        """Return the run, with the state of its port and the packets that came meanwhile."""
        port = test["%s_port" % role]
        now = ports.packets(*port)
        received = None if now is None or self._received is None else now - self._received
        return {**run, "link": {**ports.state_of(*port), "received": received}}


CONNECT_S = 8.0
IDLE_S = 20.0
# for an answer to come back
ANSWER_S = 10.0


def look(options: argparse.Namespace) -> None:
    """Say which ports, adapters, programs and GPUs this host has."""
    say(
        event="rdma",
        ports=ports.ports(),
        adapters=ports.adapters_on_bus(),
        programs=installed(options.programs.split(",")),
        memlock=ports.memlock(),
        gpus=ports.gpus(),
    )


def longest_s(plan: List[Dict[str, Any]]) -> float:
    """No message is later than this after the one before it."""
    return float(max(test["deadline_s"] for test in plan)) + LISTEN_S + FINISH_S + ANSWER_S


def serve(options: argparse.Namespace) -> None:
    """Do what the end that measures asks for."""
    program.end_by_signals()
    plan = json.loads(options.plan)
    with kept_alive(sockets.await_client(options.address, options.port, IDLE_S)) as sock:
        # perftest's servers listen on the port that this connection came to
        ends = Ends(plan, options.address, sock.getsockname()[1])
        try:
            answer_until_end(sock, ends, str(sock.getpeername()[0]), longest_s(plan))
        finally:
            ends.close()


def kept_alive(sock: socket.socket) -> socket.socket:
    """Return the socket, on which a dead path is noticed in seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 15000)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock


def receive(sock: socket.socket, timeout_s: float) -> Dict[str, Any]:
    """One message; OSError if the other end is gone or says nothing in this time."""
    sock.settimeout(timeout_s)
    message: Dict[str, Any] = sockets.receive_message(sock)
    return message


def answer_until_end(sock: socket.socket, ends: Ends, peer: str, idle_s: float) -> None:
    """Do what the other end asks."""
    while True:
        asked = receive(sock, idle_s)
        number = int(asked.get("test", 0))
        if asked["do"] == "end":
            return
        if asked["do"] == "start":
            answer = ends.start_server(number)
        elif asked["do"] == "finish":
            answer = {"run": ends.finish_server(number)}
        else:
            answer = {"run": ends.client(number, peer, int(asked["port"]))}
        sockets.send_message(sock, answer)


class Leader:
    """Runs the plan with the other end; `runs` is what is known of the test under way, also where an end is lost."""

    def __init__(self, sock: socket.socket, ends: Ends, there: str) -> None:
        self.runs: Dict[str, Optional[Dict[str, Any]]] = {}
        self._sock, self._ends, self._there = sock, ends, there

    def ask(self, timeout_s: float, **message: Any) -> Dict[str, Any]:
        """Send the other end a request, and return its answer."""
        sockets.send_message(self._sock, message)
        return receive(self._sock, timeout_s)

    def test(self, number: int) -> None:
        """Both ends' runs; None of one that was not started."""
        self.runs = {"server": None, "client": None}
        if self._ends.plan[number]["server_here"]:
            self._served_here(number)
        else:
            self._served_there(number)

    def _served_here(self, number: int) -> None:
        started = self._ends.start_server(number)
        if "run" in started:
            self.runs["server"] = started["run"]
            return
        wait_s = self._ends.plan[number]["deadline_s"] + 2 * END_S + ANSWER_S
        try:
            self.runs["client"] = self.ask(wait_s, do="client", test=number, port=started["port"])["run"]
        finally:
            self.runs["server"] = self._ends.finish_server(number)

    def _served_there(self, number: int) -> None:
        started = self.ask(LISTEN_S * ATTEMPTS + ANSWER_S, do="start", test=number)
        if "run" in started:
            self.runs["server"] = started["run"]
            return
        self.runs["client"] = self._ends.client(number, self._there, int(started["port"]))
        self.runs["server"] = self.ask(FINISH_S + 2 * END_S + ANSWER_S, do="finish", test=number)["run"]


def measure(options: argparse.Namespace) -> None:
    """Lead the other end through the plan."""
    program.end_by_signals()
    plan = json.loads(options.plan)
    try:
        sock = sockets.connect(options.address, options.port, options.bind, CONNECT_S)
    except sockets.UnreachedError as error:
        say(event="unreached", why=error.why, text=str(error))
        raise
    local_address = str(sock.getsockname()[0])
    ends = Ends(plan, local_address, options.fixed_port)
    with kept_alive(sock):
        try:
            lead(Leader(sock, ends, options.address), plan, [local_address, options.address])
            sockets.send_message(sock, {"do": "end"})
        finally:
            ends.close()


def lead(leader: Leader, plan: List[Dict[str, Any]], addresses: List[str]) -> None:
    """Every test of the plan; after one that failed, no more of its group."""
    failed = set()
    for number, test in enumerate(plan):
        if test["group"] in failed:
            continue
        try:
            leader.test(number)
        except OSError as error:
            say(event="run", test=number, addresses=addresses, gone=str(error), **leader.runs)
            raise RuntimeError("the other end does not answer any more: %s" % error) from error
        say(event="run", test=number, addresses=addresses, gone="", **leader.runs)
        if has_failed(leader.runs["client"]) or has_failed(leader.runs["server"]):
            failed.add(test["group"])


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look`, `serve` or `measure`."""
    parser, (looking, *ends) = program.commands(look, serve, measure)
    looking.add_argument("--programs", required=True, help="names with commas between them")
    program.add_addresses(ends)
    for end in ends:
        end.add_argument("--plan", required=True, help="the tests, as JSON")
        end.add_argument("--fixed-port", type=int, default=0, help="where perftest listens on the client's host")
    return program.run(parser, argv, subprocess.SubprocessError)
