"""perftest's two ends: `serve` and `measure` run a plan of tests together, on two hosts or on one.

`look` says what there is. Who measures leads: for each test of the plan the other end starts perftest's server, and it
the client; both ends' outputs are told by the one who measures.
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
from ...common.frames import say
from ...common.sockets import LISTEN
from ...jobs.syscalls import die_with_parent
from ..tcp import port_states
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


class Program:
    """A run that has started; its output goes to files, so that nothing is lost when it is killed."""

    def __init__(self, argv: Sequence[str], cpus: Sequence[int]) -> None:
        """`cpus` are those to run on, none for all; ones that this process may not use are left out."""
        self.argv = list(argv)
        self._out, self._err = (os.fdopen(os.memfd_create("perftest"), "w+b") for _ in range(2))
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
        printed = []
        for file in (self._out, self._err):
            file.seek(0)
            printed.append(file.read(MOST_BYTES).decode(errors="replace"))
        outcome = {
            "argv": self.argv,
            "status": self._process.returncode,
            "stdout": printed[0],
            "stderr": printed[1],
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


class Servers:
    """perftest's servers, test by test, on the port on which the other end came."""

    def __init__(self, plan: List[Dict[str, Any]], port: int) -> None:
        self.plan, self.port = plan, port
        self.running: Optional[Program] = None
        self._received: Optional[int] = None

    def start(self, number: int) -> Dict[str, Any]:
        """Return {"run"} of a server that ended instead of listening; nothing of one that listens."""
        test = self.plan[number]
        self._received = ports.packets(*test["server_port"])
        argv = [*test["server"], "-p", str(self.port)]
        for attempt in range(ATTEMPTS):
            try:
                server = Program(argv, test["server_cpus"])
            except OSError as error:
                return {"run": not_started(argv, error)}
            until = time.monotonic() + LISTEN_S
            while LISTEN not in port_states(self.port) and server.running() and time.monotonic() < until:
                time.sleep(POLL_S)
            if server.running():
                self.running = server
                return {}
            run = server.outcome()
            if BUSY not in run["stderr"] + run["stdout"] or attempt + 1 == ATTEMPTS:
                break
            time.sleep(0.5)
        return {"run": seen(run, test["server_port"], self._received)}

    def finish(self, number: int) -> Dict[str, Any]:
        """Return what became of it; it has ended then."""
        server, self.running = self.running, None
        if server is None:
            raise RuntimeError("no server was started for test %d" % number)
        server.wait(FINISH_S)
        return seen(server.outcome(), self.plan[number]["server_port"], self._received)


def run_client(test: Dict[str, Any], address: str, port: int) -> Dict[str, Any]:
    """Run it to its end, or to its deadline; what became of it."""
    received = ports.packets(*test["client_port"])
    argv = [*test["client"], "-p", str(port), address]
    try:
        client = Program(argv, test["client_cpus"])
    except OSError as error:
        return not_started(argv, error)
    try:
        client.wait(test["deadline_s"])
        return seen(client.outcome(), test["client_port"], received)
    finally:
        client.clear()


def seen(run: Dict[str, Any], port: Sequence[Any], before: Optional[int]) -> Dict[str, Any]:
    """Return the run, with the state of its port and the packets that came meanwhile."""
    now = ports.packets(*port)
    received = None if now is None or before is None else now - before
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


def serve(options: argparse.Namespace) -> None:
    """Do what the end that measures asks for."""
    program.end_by_signals()
    plan = json.loads(options.plan)
    # no message is later than this after the one before it
    idle_s = float(max(test["deadline_s"] for test in plan)) + LISTEN_S + FINISH_S + ANSWER_S
    with kept_alive(sockets.await_client(options.address, options.port, IDLE_S)) as sock:
        servers = Servers(plan, sock.getsockname()[1])
        try:
            while True:
                asked = receive(sock, idle_s)
                if asked["do"] == "end":
                    return
                number = int(asked["test"])
                answer = servers.start(number) if asked["do"] == "start" else {"run": servers.finish(number)}
                sockets.send_message(sock, answer)
        finally:
            if servers.running is not None:
                servers.running.clear()


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


def ask(sock: socket.socket, timeout_s: float, **message: Any) -> Dict[str, Any]:
    """Send the other end a request, and return its answer."""
    sockets.send_message(sock, message)
    return receive(sock, timeout_s)


def measure(options: argparse.Namespace) -> None:
    """Lead the other end through the plan; after a test that failed, no more of its group."""
    program.end_by_signals()
    plan = json.loads(options.plan)
    try:
        sock = sockets.connect(options.address, options.port, options.bind, CONNECT_S)
    except sockets.UnreachedError as error:
        say(event="unreached", why=error.why, text=str(error))
        raise
    addresses = [str(sock.getsockname()[0]), options.address]
    failed = set()
    with kept_alive(sock):
        for number, test in enumerate(plan):
            if test["group"] in failed:
                continue
            runs: Dict[str, Optional[Dict[str, Any]]] = {"server": None, "client": None}
            gone = ""
            try:
                run_test(sock, number, test, options, runs)
            except OSError as error:
                gone = str(error)
            say(event="run", test=number, addresses=addresses, gone=gone, **runs)
            if gone:
                raise RuntimeError("the other end does not answer any more: %s" % gone)
            # one was not started, was ended, or ended with an error
            if any(run is None or run["status"] or run["timed_out"] for run in runs.values()):
                failed.add(test["group"])
        sockets.send_message(sock, {"do": "end"})


def run_test(
    sock: socket.socket, number: int, test: Dict[str, Any], options: argparse.Namespace, runs: Dict[str, Any]
) -> None:
    """Put both ends' runs into `runs`, also where the other end is lost; None of one that was not started."""
    started = ask(sock, LISTEN_S * ATTEMPTS + ANSWER_S, do="start", test=number)
    if "run" in started:
        runs["server"] = started["run"]
        return
    runs["client"] = run_client(test, options.address, options.port)
    runs["server"] = ask(sock, FINISH_S + 2 * END_S + ANSWER_S, do="finish", test=number)["run"]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look`, `serve` or `measure`."""
    parser, (looking, *ends) = program.commands(look, serve, measure)
    looking.add_argument("--programs", required=True, help="names with commas between them")
    program.add_addresses(ends)
    for end in ends:
        end.add_argument("--plan", required=True, help="the tests, as JSON")
    return program.run(parser, argv, subprocess.SubprocessError)
