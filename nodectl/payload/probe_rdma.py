"""perftest's two ends on a host: `look` says what there is, `serve` and `measure` run a plan of tests together.

Who measures leads: for each test of the plan one end starts perftest's server and the other its client, as the plan
says, and both ends' outputs are told by the one who measures. JSON lines; Python 3.8, standard library.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.rdmabench import ports, programs, talk
    from nodectl.payload.rdmabench.ends import ATTEMPTS, FINISH_S, LISTEN_S, Ends
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from rdmabench import ports, programs, talk
    from rdmabench.ends import ATTEMPTS, FINISH_S, LISTEN_S, Ends

IDLE_S = 20.0
# for an answer to come back
ANSWER_S = 10.0


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def look(options: argparse.Namespace) -> None:
    say(
        event="rdma",
        ports=ports.ports(),
        adapters=ports.adapters_on_bus(),
        programs=programs.look(options.programs.split(",")),
        memlock=ports.memlock(),
        gpus=ports.gpus(),
    )


def longest_s(plan: List[Dict[str, Any]]) -> float:
    """No message is later than this after the one before it."""
    return float(max(test["deadline_s"] for test in plan)) + LISTEN_S + FINISH_S + ANSWER_S


def serve(options: argparse.Namespace) -> None:
    plan = json.loads(options.plan)
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        # perftest's servers listen on the same port afterwards: one hole in a firewall is enough
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.address, options.port))
        listening.listen(1)
        listening.settimeout(IDLE_S)
        port = listening.getsockname()[1]
        say(event="listening", port=port, pid=os.getpid())
        try:
            sock, peer = listening.accept()
        except socket.timeout:
            raise RuntimeError("no client came within %g s" % IDLE_S) from None
    ends = Ends(plan, options.address, port)
    with talk.tuned(sock):
        try:
            answer_until_end(sock, ends, str(peer[0]), longest_s(plan))
        finally:
            ends.close()


def answer_until_end(sock: socket.socket, ends: Ends, peer: str, idle_s: float) -> None:
    """Do what the other end asks."""
    while True:
        asked = talk.receive(sock, idle_s)
        number = int(asked.get("test", 0))
        if asked["do"] == "end":
            return
        if asked["do"] == "start":
            answer = ends.start_server(number)
        elif asked["do"] == "finish":
            answer = {"run": ends.finish_server(number)}
        else:
            answer = {"run": ends.client(number, peer, int(asked["port"]))}
        talk.send(sock, answer)


class Leader:
    """Runs the plan with the other end; `runs` is what is known of the test under way, also where an end is lost."""

    def __init__(self, sock: socket.socket, ends: Ends, there: str) -> None:
        self.runs: Dict[str, Optional[Dict[str, Any]]] = {}
        self._sock, self._ends, self._there = sock, ends, there

    def ask(self, timeout_s: float, **message: Any) -> Dict[str, Any]:
        talk.send(self._sock, message)
        return talk.receive(self._sock, timeout_s)

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
        wait_s = self._ends.plan[number]["deadline_s"] + 2 * programs.END_S + ANSWER_S
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
        self.runs["server"] = self.ask(FINISH_S + 2 * programs.END_S + ANSWER_S, do="finish", test=number)["run"]


def has_failed(run: Optional[Dict[str, Any]]) -> bool:
    return run is None or bool(run["status"]) or run["timed_out"]


def measure(options: argparse.Namespace) -> None:
    plan = json.loads(options.plan)
    try:
        sock = talk.connect(options.address, options.port, options.bind)
    except talk.UnreachedError as error:
        say(event="unreached", why=error.why, text=str(error))
        raise RuntimeError(str(error)) from error
    own = str(sock.getsockname()[0])
    ends = Ends(plan, own, options.fixed_port)
    with sock:
        try:
            lead(Leader(sock, ends, options.address), plan, [own, options.address])
            talk.send(sock, {"do": "end"})
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


def stop(*_: Any) -> None:
    raise SystemExit(1)


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    looking = commands.add_parser("look")
    looking.set_defaults(run=look)
    looking.add_argument("--programs", required=True, help="names with commas between them")
    for name, run in (("serve", serve), ("measure", measure)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--address", required=True, help="to bind to, or to connect to")
        command.add_argument("--port", type=int, default=0)
        command.add_argument("--plan", required=True, help="the tests, as JSON")
        command.add_argument("--fixed-port", type=int, default=0, help="where perftest listens on the client's host")
        command.add_argument("--bind", help="the client's own address")
    options = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        options.run(options)
    except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
        say(event="error", text=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
