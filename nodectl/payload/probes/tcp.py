"""iperf3's two ends on a host: `serve` answers a number of tests and ends by itself, `measure` runs them."""

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import List, Optional, Sequence, Tuple

from ..common import program
from ..common.frames import say
from ..common.sockets import ESTABLISHED, LISTEN, family, kernel_rows
from ..jobs.syscalls import die_with_parent

POLL_S = 0.01
# a server that nobody comes to, and a client that finds the server between two tests
IDLE_S = 15.0
RETRY_S = 5.0
# what a test may take beyond its duration: connecting over a slow path, exchanging results
SLACK_S = 10.0
CHUNK_BYTES = 1 << 16
ATTEMPTS = 5


def port_states(port: int) -> List[str]:
    """States of the TCP sockets of this network namespace with this local port."""
    return [row[3] for row in kernel_rows() if int(row[1].rpartition(":")[2], 16) == port]


def reserve(address: str, port: int) -> int:
    """Return the port, any free one for 0; OSError if somebody listens on it: iperf3 would take his for its own."""
    with socket.socket(family(address), socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        return int(sock.getsockname()[1])


def start_server(address: str, port: int) -> "subprocess.Popen[bytes]":
    """iperf3 for one test, listening; it ends with this program at the latest."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", address, "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )
    while LISTEN not in port_states(port):
        if server.poll() is not None:
            text = server.communicate()[0].decode(errors="replace").strip()
            raise RuntimeError(text.splitlines()[-1] if text else "iperf3 ended with %d" % server.returncode)
        time.sleep(POLL_S)
    return server


def first_server(address: str, port: int) -> Tuple["subprocess.Popen[bytes]", int]:
    """Start a server on `port`; on any free one where that is 0, another one where somebody was quicker."""
    for _ in range(ATTEMPTS):
        chosen = reserve(address, port)
        try:
            return start_server(address, chosen), chosen
        except RuntimeError as error:
            if port or "in use" not in str(error):
                raise
    raise RuntimeError("no free port on %s in %d attempts" % (address, ATTEMPTS))


def serve_one(server: "subprocess.Popen[bytes]", port: int, seconds: float) -> None:
    """Wait for one test; RuntimeError if nobody comes, or where it overruns."""
    began = time.monotonic()
    connected = False
    # what it prints is read, as a full pipe would hold the test up; its end is the server's
    while not ended(server, 0.2 if connected else 0.05):
        waited = time.monotonic() - began
        connected = connected or ESTABLISHED in port_states(port)
        if waited > (seconds + SLACK_S if connected else IDLE_S):
            raise RuntimeError("a test overran its time" if connected else "no client came within %g s" % IDLE_S)


def ended(server: "subprocess.Popen[bytes]", within_s: float) -> bool:
    """Return whether the server closes its output within this time; what it prints is thrown away."""
    until, output = time.monotonic() + within_s, server.stdout
    while output is not None and select.select([output], [], [], max(0.0, until - time.monotonic()))[0]:
        if not os.read(output.fileno(), CHUNK_BYTES):
            server.wait()
            return True
    return False


def serve(options: argparse.Namespace) -> None:
    """Answer all tests, a server each."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server, port = first_server(options.address, options.port)
    say(event="listening", port=port, pid=os.getpid())
    serve_one(server, port, options.seconds)
    for _ in range(options.tests - 1):
        serve_one(start_server(options.address, port), port, options.seconds)


def run_client(argv: List[str], seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """One test; retried while the server is between two tests."""
    until = time.monotonic() + RETRY_S
    while True:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds + SLACK_S
        )
        busy = b"Connection refused" in done.stdout or b"server is busy" in done.stdout
        if not busy or time.monotonic() > until:
            return done
        time.sleep(0.05)


def measure(options: argparse.Namespace) -> None:
    """Run the tests, and say what iperf3 printed of each."""
    argv = ["iperf3", "-c", options.address, "-p", str(options.port), "-J"]
    argv += ["-t", "%g" % options.seconds, "-P", str(options.streams)]
    argv += ["-B", options.bind] if options.bind else []
    for number in range(options.tests):
        reverse = number % 2 == 1
        try:
            done = run_client(argv + (["-R"] if reverse else []), options.seconds)
        except subprocess.TimeoutExpired as late:
            raise RuntimeError(
                "iperf3 did not end within %g s: is the path cut?" % (options.seconds + SLACK_S)
            ) from late
        error = done.stderr.decode(errors="replace").strip()
        say(event="test", reverse=reverse, text=done.stdout.decode(errors="replace"), stderr=error)
        if done.returncode:
            return


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `serve` or `measure`."""
    parser, ends = program.commands(serve, measure)
    program.add_addresses(ends)
    for end in ends:
        end.add_argument("--tests", type=int, required=True, help="forth and back in turn")
        end.add_argument("--seconds", type=float, required=True)
        end.add_argument("--streams", type=int, default=1)
    return program.run(parser, argv)
