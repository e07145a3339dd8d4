"""One host of the retrieval measurement: holds a shard of an embedding table; the first host asks all shards.

On standard input a JSON object: the token that all share and, for the host that asks, the others' addresses and ports.
"""

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ...common.events import first_line, say
from .. import gang
from . import table as table_of
from . import wire
from .front import Front


class Shard:
    """A part of the table on this host's device."""

    def __init__(self, options: argparse.Namespace, torch: Any) -> None:
        self.torch, self.options = torch, options
        self.device = torch.device(options.device)
        self.rows = range(options.first_row, options.end_row)
        largest = max(options.batches)
        table_of.check_memory(torch, len(self.rows), options.dim, largest, self.device)
        self.table = table_of.make(torch, options.seed, self.rows, options.dim, self.device)

    def search(self, asked: Any, k: int, rows: int) -> Tuple[int, Any, Any]:
        """(ns that it took, rows of the whole table, their scores); `rows` 0 searches all."""
        began = time.perf_counter_ns()
        part = self.table[:rows] if rows else self.table
        scores, places = table_of.search(self.torch, part, asked.to(self.device), k)
        scores, places = scores.cpu(), places.cpu() + self.rows.start
        return time.perf_counter_ns() - began, places, scores

    def answer(self, sock: socket.socket, request: wire.Request) -> None:
        """Send what was found; nothing to a request without queries, which measures the trip."""
        if not request.queries:
            wire.send_answer(sock, 0, 0, 0, b"")
            return
        asked = self.torch.frombuffer(request.data, dtype=self.torch.float32).view(request.queries, request.dim)
        took_ns, places, scores = self.search(asked, request.k, request.rows)
        data = table_of.to_bytes(self.torch, places) + table_of.to_bytes(self.torch, scores)
        wire.send_answer(sock, request.queries, scores.shape[1], took_ns, data)


def serve(options: argparse.Namespace, token: bytes, torch: Any, server: socket.socket) -> None:
    """Answer one front until it has no more questions."""
    shard = Shard(options, torch)
    say_ready(shard)
    while True:
        sock, _ = server.accept()
        with sock:
            if not wire.admit(sock, token):
                continue
            while True:
                request = wire.receive_request(sock)
                if request is None:
                    return
                shard.answer(sock, request)


def say_ready(shard: Shard) -> None:
    """Say on what the shard lies."""
    torch = shard.torch
    name = torch.cuda.get_device_name(shard.device) if shard.device.type == "cuda" else "cpu"
    say(event="ready", torch=torch.__version__, device=name, threads=torch.get_num_threads(), rows=len(shard.rows))


def ask_all(options: argparse.Namespace, given: Dict[str, Any], token: bytes, torch: Any) -> None:
    """Measure every batch size over all shards, and check them."""
    socks: List[socket.socket] = []
    front = Front(options, torch, Shard(options, torch), socks)
    say_ready(front.shard)
    for address, port in given["shards"]:
        socks.append(wire.connect(address, port, options.address, token))
    say(event="trip", ms=front.trip_ms())
    for batch in options.batches:
        front.measure(batch)
    front.check([range(first, end) for first, end in given["rows"]])
    for sock in socks:
        wire.send_end(sock)


def prepare(options: argparse.Namespace) -> Any:
    """torch, with the threads that this host has for it."""
    if Path("/etc/nodectl-lab").exists():  # its hosts share their cores
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    # threads that wait by spinning take the cores from others
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_grad_enabled(False)
    if options.device == "cuda":
        torch.cuda.set_device(0)
    return torch


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    for name in ("port", "first-row", "end-row", "dim", "k", "seed", "runs", "groups"):
        parser.add_argument("--" + name, type=int, required=True)
    for name in ("address", "device"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--batches", type=lambda text: list(map(int, text.split(","))), required=True)
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Hold a shard, or ask all."""
    status = run(parse(argv))
    # a thread of torch that wakes up while Python winds down aborts the process now and then
    os._exit(status)


def run(options: argparse.Namespace) -> int:
    """Its exit status; what went wrong is said."""
    if options.turns:
        gang.expect_turns()
    say(event="started", pid=os.getpid())
    given = json.load(sys.stdin)
    token = bytes.fromhex(given["token"])
    try:
        if "shards" in given:
            ask_all(options, given, token, prepare(options))
        else:
            with wire.listen(options.address, options.port) as server:
                serve(options, token, prepare(options), server)
    except table_of.MemoryLimitError as error:
        say(event="error", text=str(error), remedy="take fewer --rows, or more hosts", peer=False)
        return 1
    except (ConnectionError, socket.timeout) as error:
        say(event="error", text=first_line(error), peer=True)
        return 1
    except Exception as error:
        say(event="error", text=first_line(error), peer=False)
        return 1
    return 0
