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

# different batches, asked in turn
BATCHES = 16
WARM_UP = 5
WARM_UP_PART = 0.2
TRIPS = 50
CHECK_QUERIES = 4
# a table with more values than this is checked in part, some rows of every shard
CHECK_VALUES = 1 << 26


class Front:
    """Asks all shards, its own among them, and merges what they found."""

    def __init__(self, options: argparse.Namespace, torch: Any, shard: Any, socks: List[socket.socket]) -> None:
        self.torch, self.options, self.shard, self.socks = torch, options, shard, socks

    def ask(self, asked: Any, data: bytearray, rows: int = 0) -> List[Tuple[int, Any, Any]]:
        """Return what each shard answers, this host's own first; all search at the same time."""
        k = self.options.k
        request = wire.Request(len(asked), self.options.dim, k, rows, data)
        for sock in self.socks:
            wire.send_request(sock, request)
        local_answer = self.shard.search(asked, k, rows)
        return [local_answer, *(self.read(wire.receive_answer(sock)) for sock in self.socks)]

    def read(self, answer: wire.Answer) -> Tuple[int, Any, Any]:
        """Return what a shard answered: its time in ns, scores and rows."""
        torch, count = self.torch, answer.queries * answer.results
        places = torch.frombuffer(answer.data, dtype=torch.int64, count=count)
        scores = torch.frombuffer(answer.data, dtype=torch.float32, count=count, offset=8 * count)
        shape = (answer.queries, answer.results)
        return answer.took_ns, places.view(shape), scores.view(shape)

    def merged(self, answers: Sequence[Tuple[int, Any, Any]]) -> Tuple[Any, Any]:
        """(rows, scores) of the best of all shards."""
        places = self.torch.cat([rows for _, rows, _ in answers], dim=1)
        scores = self.torch.cat([scores for _, _, scores in answers], dim=1)
        best, where = self.torch.topk(scores, min(self.options.k, scores.shape[1]), dim=1)
        return places.gather(1, where), best

    def prepared(self, batch: int) -> List[Tuple[Any, bytearray]]:
        """Different batches of queries, each also as the bytes that are sent."""
        seed, dim = self.options.seed, self.options.dim
        batches = [table_of.queries(self.torch, seed, number, batch, dim) for number in range(BATCHES)]
        return [(queries, bytearray(table_of.to_bytes(self.torch, queries))) for queries in batches]

    def run(self, prepared: Sequence[Tuple[Any, bytearray]], seconds: float, least: int) -> List[Tuple[int, int]]:
        """(latency, the slowest shard's search) in ns of each batch, as many as fit into the time."""
        times: List[Tuple[int, int]] = []
        ends = time.perf_counter() + seconds
        while len(times) < least or time.perf_counter() < ends:
            asked, data = prepared[len(times) % len(prepared)]
            began = time.perf_counter_ns()
            answers = self.ask(asked, data)
            self.merged(answers)
            times.append((time.perf_counter_ns() - began, max(took_ns for took_ns, _, _ in answers)))
        return times

    def measure(self, batch: int) -> None:
        """Warmed up, then the runs of one batch size (with --turns each when it may begin), dealt to their groups."""
        options, prepared = self.options, self.prepared(batch)
        self.run(prepared, WARM_UP_PART * options.seconds, WARM_UP)
        runs: List[Tuple[List[Tuple[int, int]], float]] = []
        for number in range(options.runs):
            if options.turns:
                gang.wait_for_turn(number)
                self.run(prepared, WARM_UP_PART * options.seconds, WARM_UP)
            began = time.perf_counter()
            times = self.run(prepared, options.seconds, 1)
            runs.append((times, time.perf_counter() - began))
        for group in range(options.groups):
            self.tell(batch, group, runs[group :: options.groups])

    def tell(self, batch: int, group: int, runs: List[Tuple[List[Tuple[int, int]], float]]) -> None:
        """Say what the runs of one group came to."""
        latencies = [[latency for latency, _ in times] for times, _ in runs]
        every = [latency for run in latencies for latency in run]
        searches = [search for times, _ in runs for _, search in times]
        say(
            event="runs",
            batch=batch,
            group=group,
            counts=[len(run) for run in latencies],
            p50_ms=[milliseconds(run, 0.5) for run in latencies],
            p99_ms=milliseconds(every, 0.99),
            min_ms=milliseconds(every, 0),
            max_ms=milliseconds(every, 1),
            search_ms=milliseconds(searches, 0.5),
            other_ms=milliseconds([whole - local_s for whole, local_s in zip(every, searches)], 0.5),  # noqa: B905 - Python 3.8
            queries_s=[round(batch * len(times) / took, 3) for times, took in runs],
        )

    def trip_ms(self) -> Optional[float]:
        """Return the median time until all shards have answered to nothing: what no query is faster than."""
        if not self.socks:
            return None
        nothing, trips = wire.Request(0, 0, 0, 0, bytearray()), []
        for _ in range(TRIPS):
            began = time.perf_counter_ns()
            for sock in self.socks:
                wire.send_request(sock, nothing)
            for sock in self.socks:
                wire.receive_answer(sock)
            trips.append(time.perf_counter_ns() - began)
        return milliseconds(trips, 0.5)

    def check(self, shards: Sequence[range]) -> None:
        """Compare a few queries with brute force over the rows of every shard, made again here."""
        torch, options = self.torch, self.options
        limit = min(max(map(len, shards)), max(1, CHECK_VALUES // options.dim // len(shards)))
        asked = table_of.queries(torch, options.seed, BATCHES, CHECK_QUERIES, options.dim)
        answers = self.ask(asked, bytearray(table_of.to_bytes(torch, asked)), limit)
        wrong, bests = [], []
        for number, (rows, answer) in enumerate(zip(shards, answers)):  # noqa: B905 - Python 3.8
            best, named_scores = brute(torch, options, rows[:limit], asked, answer[1])
            bests.append(best)
            if not agrees(torch, best, named_scores, answer[1], answer[2]):
                wrong.append(number)
        _, scores = self.merged(answers)
        best = torch.topk(torch.cat(bests, dim=1), scores.shape[1], dim=1).values
        checked = sum(min(limit, len(rows)) for rows in shards)
        say(event="checked", rows=checked, queries=len(asked), wrong=wrong, merged=bool(torch.equal(best, scores)))


def brute(torch: Any, options: argparse.Namespace, rows: range, asked: Any, places: Any) -> Tuple[Any, Any]:
    """Return the best scores in these rows, and the scores of the rows named in `places`, by going through all."""
    best = torch.full((len(asked), 0), 0.0)
    named_scores = torch.full(places.shape, float("nan"))
    for first, part in table_of.blocks(torch, options.seed, rows, options.dim):
        scores = asked @ part.T
        best = torch.cat([best, scores], dim=1)
        best = torch.topk(best, min(options.k, best.shape[1]), dim=1).values
        here = (places >= first) & (places < first + len(part))
        named = scores.gather(1, (places - first).clamp(0, len(part) - 1))
        named_scores = torch.where(here, named, named_scores)
    return best, named_scores


def agrees(torch: Any, best: Any, named_scores: Any, places: Any, scores: Any) -> bool:
    """Return whether the scores are the best, are those of the rows named, and no row is named twice."""
    once = all(len(set(row)) == len(row) for row in places.tolist())
    return once and bool(torch.equal(best, scores)) and bool(torch.equal(named_scores, scores))


def milliseconds(values_ns: Sequence[int], share: float) -> float:
    """Return that quantile of nanoseconds, in milliseconds."""
    ordered = sorted(values_ns)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6, 6)


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
