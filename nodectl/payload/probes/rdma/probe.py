"""perftest's two ends on a host: `serve` and `measure` run a plan of tests together, `alone` runs one by itself.

`look` says what there is. Who measures leads: for each test of the plan one end starts perftest's server and the other
its client, as the plan says, and both ends' outputs are told by the one who measures.
"""

import argparse
import json
import socket
import subprocess
from typing import Any, Dict, List, Optional, Sequence

from ...common import program, sockets
from ...common.events import say
from . import ends, ports
from .ends import ATTEMPTS, FINISH_S, LISTEN_S, Ends, both_ends, has_failed

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
        programs=ends.look(options.programs.split(",")),
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
    """One message; OSError where the other end is gone or says nothing in this time."""
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
        wait_s = self._ends.plan[number]["deadline_s"] + 2 * ends.END_S + ANSWER_S
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
        self.runs["server"] = self.ask(FINISH_S + 2 * ends.END_S + ANSWER_S, do="finish", test=number)["run"]


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


def alone(options: argparse.Namespace) -> None:
    """Run a plan without another host."""
    program.end_by_signals()
    both_ends(json.loads(options.plan), options.repetitions)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look`, `alone`, `serve` or `measure`."""
    parser, (looking, by_itself, *ends) = program.commands(look, alone, serve, measure)
    looking.add_argument("--programs", required=True, help="names with commas between them")
    for subparser in (by_itself, *ends):
        subparser.add_argument("--plan", required=True, help="the tests, as JSON")
    by_itself.add_argument("--repetitions", type=int, default=1)
    program.add_addresses(ends)
    for end in ends:
        end.add_argument("--fixed-port", type=int, default=0, help="where perftest listens on the client's host")
    return program.run(parser, argv, subprocess.SubprocessError)
