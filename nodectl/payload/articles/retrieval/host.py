"""One host's rank of the retrieval measurement: it holds a shard of an embedding table; rank 0 asks all shards.

Queries are broadcast and answers gathered by torch.distributed over gloo. Scores are whole numbers, so that an answer
is one tensor of int64: the time of the search, then rows of the whole table and their scores. The table is made from a
seed, any part of it on any host. Its values are small whole numbers, so that every score is exact in float32 on every
device, in whatever order it is summed.
"""

import argparse
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ...common import ranks as host_ranks
from ...common.frames import say
from ...common.machine import available_bytes
from .. import gang

BLOCK_ROWS = 4096
LARGEST = 15
ITEM_BYTES = 4
# of the memory that is free, what a shard may take: the table, a block in the making, and the scores of a batch
MEMORY_PART = 0.5
# different batches, asked in turn
BATCHES = 16
WARM_UP = 5
WARM_UP_PART = 0.2
CHECK_QUERIES = 4
# a table with more values than this is checked in part, some rows of every shard
CHECK_VALUES = 1 << 26
# number of queries by which rank 0 ends the others
END = -1
# row and score of a result that a shard of fewer rows does not have
NONE, LEAST = -1, -(1 << 62)

# of one shard: rows of the whole table and their scores, (queries, k) each
Found = Tuple[Any, Any]


def shard_rows(rows: int, rank: int, count: int) -> range:
    """Return the rows of a rank's shard; shards differ by one row at most."""
    return range(rank * rows // count, (rank + 1) * rows // count)


def block(torch: Any, seed: int, number: int, dim: int) -> Any:
    """Rows `number * BLOCK_ROWS` and on."""
    # always drawn on the CPU: a GPU's generator gives other numbers
    random = torch.Generator().manual_seed(seed * 1_000_003 + number)
    drawn = torch.randint(-LARGEST, LARGEST + 1, (BLOCK_ROWS, dim), generator=random, dtype=torch.int8)
    return drawn.to(torch.float32)


def blocks(torch: Any, seed: int, rows: range, dim: int) -> Iterator[Tuple[int, Any]]:
    """(first row, rows) of `rows`, a block at a time."""
    first = rows.start
    while first < rows.stop:
        number, skip = divmod(first, BLOCK_ROWS)
        part = block(torch, seed, number, dim)[skip : skip + rows.stop - first]
        yield first, part
        first += len(part)


def make_table(torch: Any, seed: int, rows: range, dim: int, device: Any) -> Any:
    """Return a part of the table on its device."""
    table = torch.empty((len(rows), dim), dtype=torch.float32, device=device)
    for first, part in blocks(torch, seed, rows, dim):
        table[first - rows.start : first - rows.start + len(part)] = part.to(device)
    return table


def queries(torch: Any, seed: int, number: int, batch: int, dim: int) -> Any:
    """Return a batch of queries; other numbers than any row's."""
    random = torch.Generator().manual_seed(seed * 1_000_003 - 1 - number)
    return torch.randint(-LARGEST, LARGEST + 1, (batch, dim), generator=random, dtype=torch.int8).to(torch.float32)


def search(torch: Any, table: Any, asked: Any, k: int) -> Tuple[Any, Any]:
    """(scores, places in the table) of the best `k` rows of each query, best first."""
    scores, places = torch.topk(asked @ table.T, min(k, len(table)), dim=1)
    return scores, places


def check_memory(torch: Any, rows: int, dim: int, batch: int, device: Any) -> None:
    """Raise MemoryError if the shard would take more than its part of what is free."""
    wanted = ITEM_BYTES * (rows * dim + 2 * batch * rows)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    if free is not None and wanted > MEMORY_PART * free:
        raise MemoryError(
            "its shard takes %.1f GiB, and %.1f GiB are free; a shard gets half of that: "
            "take fewer --rows, or more hosts" % (wanted / 2**30, free / 2**30)
        )


class Shard:
    """A part of the table on this host's device, and the exchange with the other shards."""

    def __init__(self, options: argparse.Namespace, torch: Any) -> None:
        self.torch, self.options, self.dist = torch, options, torch.distributed
        self.device = torch.device(options.device)
        self.rank, self.count = options.rank_base, options.world_size
        self.rows = shard_rows(options.rows, self.rank, self.count)
        check_memory(torch, len(self.rows), options.dim, max(options.batches), self.device)
        self.table = make_table(torch, options.seed, self.rows, options.dim, self.device)

    def answer(self, asked: Any, rows: int) -> Any:
        """Return the time of the search, and the best rows of the first `rows` (0: all), as one tensor."""
        torch, shape = self.torch, (len(asked), self.options.k)
        places = torch.full(shape, NONE, dtype=torch.int64)
        scores = torch.full(shape, LEAST, dtype=torch.int64)
        began = time.perf_counter_ns()
        part = self.table[:rows] if rows else self.table
        best, where = search(torch, part, asked.to(self.device), self.options.k)
        places[:, : best.shape[1]] = where.cpu() + self.rows.start
        scores[:, : best.shape[1]] = best.cpu().to(torch.int64)
        took = torch.tensor([time.perf_counter_ns() - began])
        return torch.cat([took, places.flatten(), scores.flatten()])

    def ask(self, asked: Any, rows: int = 0) -> Tuple[int, List[Found]]:
        """Return the slowest search in ns, and what each shard found; all search at the same time."""
        self.broadcast(self.torch.tensor([len(asked), rows]))
        self.broadcast(asked)
        own = self.answer(asked, rows)
        answers = [self.torch.empty_like(own) for _ in range(self.count)] if self.count > 1 else [own]
        if self.count > 1:
            self.dist.gather(own, answers)
        found = [answer[1:].view(2, len(asked), self.options.k) for answer in answers]
        return max(int(answer[0]) for answer in answers), [(places, scores) for places, scores in found]

    def serve(self) -> None:
        """Answer rank 0 until it ends."""
        while True:
            head = self.torch.empty(2, dtype=self.torch.int64)
            self.broadcast(head)
            queries, rows = head.tolist()
            if queries == END:
                return
            asked = self.torch.empty(queries, self.options.dim)
            self.broadcast(asked)
            self.dist.gather(self.answer(asked, rows))

    def broadcast(self, tensor: Any) -> None:
        """Send rank 0's tensor to all."""
        if self.count > 1:
            self.dist.broadcast(tensor, 0)


class Front:
    """Measures all shards, its own among them, and checks them."""

    def __init__(self, shard: Shard) -> None:
        self.torch, self.options, self.shard = shard.torch, shard.options, shard

    def merged(self, found: Sequence[Found]) -> Found:
        """Return the best of all shards."""
        places = self.torch.cat([rows for rows, _ in found], dim=1)
        scores = self.torch.cat([scores for _, scores in found], dim=1)
        best, where = self.torch.topk(scores, min(self.options.k, self.options.rows), dim=1)
        return places.gather(1, where), best

    def queries(self, number: int, batch: int) -> Any:
        """Return a batch of queries, the same in every run."""
        return queries(self.torch, self.options.seed, number, batch, self.options.dim)

    def run(self, prepared: Sequence[Any], seconds: float, least: int) -> List[Tuple[int, int]]:
        """(latency, the slowest shard's search) in ns of each batch, as many as fit into the time."""
        times: List[Tuple[int, int]] = []
        ends = time.perf_counter() + seconds
        while len(times) < least or time.perf_counter() < ends:
            began = time.perf_counter_ns()
            search_ns, found = self.shard.ask(prepared[len(times) % len(prepared)])
            self.merged(found)
            times.append((time.perf_counter_ns() - began, search_ns))
        return times

    def measure(self, batch: int) -> None:
        """Warm up, then say what the runs of one batch size came to."""
        options, prepared = self.options, [self.queries(number, batch) for number in range(BATCHES)]
        self.run(prepared, WARM_UP_PART * options.seconds, WARM_UP)
        runs: List[Tuple[List[Tuple[int, int]], float]] = []
        for _ in range(options.runs):
            began = time.perf_counter()
            times = self.run(prepared, options.seconds, 1)
            runs.append((times, time.perf_counter() - began))
        latencies = [[latency for latency, _ in times] for times, _ in runs]
        every = [latency for run in latencies for latency in run]
        searches = [search for times, _ in runs for _, search in times]
        say(
            event="runs",
            batch=batch,
            counts=[len(run) for run in latencies],
            p50_ms=[milliseconds(run, 0.5) for run in latencies],
            p99_ms=milliseconds(every, 0.99),
            min_ms=milliseconds(every, 0),
            max_ms=milliseconds(every, 1),
            search_ms=milliseconds(searches, 0.5),
            queries_s=[round(batch * len(times) / took, 3) for times, took in runs],
        )

    def check(self) -> None:
        """Compare a few queries with brute force over the rows of every shard, made again here."""
        torch, options, count = self.torch, self.options, self.shard.count
        shards = [shard_rows(options.rows, rank, count) for rank in range(count)]
        limit = min(max(map(len, shards)), max(1, CHECK_VALUES // options.dim // count))
        asked = self.queries(BATCHES, CHECK_QUERIES)
        _, found = self.shard.ask(asked, limit)
        wrong, bests = [], []
        for number, (rows, (places, scores)) in enumerate(zip(shards, found)):  # noqa: B905 - Python 3.8
            best, named_scores = brute(torch, options, rows[:limit], asked, places)
            bests.append(best)
            if not agrees(torch, best, named_scores, places, scores):
                wrong.append(number)
        _, scores = self.merged(found)
        best = torch.topk(torch.cat(bests, dim=1), scores.shape[1], dim=1).values
        checked = sum(min(limit, len(rows)) for rows in shards)
        say(event="checked", rows=checked, queries=len(asked), wrong=wrong, merged=bool(torch.equal(best, scores)))


def brute(torch: Any, options: argparse.Namespace, rows: range, asked: Any, places: Any) -> Tuple[Any, Any]:
    """Return the best scores in these rows, and the scores of the rows named in `places`, by going through all."""
    best = torch.full((len(asked), options.k), LEAST)
    named_scores = torch.full(places.shape, LEAST)
    for first, part in blocks(torch, options.seed, rows, options.dim):
        scores = (asked @ part.T).to(torch.int64)
        best = torch.topk(torch.cat([best, scores], dim=1), options.k, dim=1).values
        here = (places >= first) & (places < first + len(part))
        named = scores.gather(1, (places - first).clamp(0, len(part) - 1))
        named_scores = torch.where(here, named, named_scores)
    return best, named_scores


def agrees(torch: Any, best: Any, named_scores: Any, places: Any, scores: Any) -> bool:
    """Return whether the scores are the best, are those of the rows named, and no row is named twice."""
    named = [[place for place in row if place != NONE] for row in places.tolist()]
    once = all(len(set(row)) == len(row) for row in named)
    return once and bool(torch.equal(best, scores)) and bool(torch.equal(named_scores, scores))


def milliseconds(values_ns: Sequence[int], share: float) -> float:
    """Return that quantile of nanoseconds, in milliseconds."""
    ordered = sorted(values_ns)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6, 6)


def run_rank(options: argparse.Namespace, _: Dict[str, str]) -> None:
    """Hold a shard, and answer; rank 0 measures every batch size over all shards, and checks them."""
    gang.set_environment(options)
    import torch

    torch.set_grad_enabled(False)
    if options.device == "cuda":
        torch.cuda.set_device(0)
    if options.world_size > 1:
        host_ranks.init_process_group(torch.distributed, options, options.rank_base)
    shard = Shard(options, torch)
    name = torch.cuda.get_device_name(shard.device) if shard.device.type == "cuda" else "cpu"
    say(event="ready", torch=torch.__version__, device=name, threads=torch.get_num_threads(), rows=len(shard.rows))
    if options.rank_base:
        shard.serve()
        return
    front = Front(shard)
    for batch in options.batches:
        front.measure(batch)
    front.check()
    shard.broadcast(torch.tensor([END, 0]))


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    gang.add_arguments(parser)
    for name in ("rows", "dim", "k", "seed", "runs"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--batches", type=lambda text: list(map(int, text.split(","))), required=True)
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Hold a shard or ask all, and end at once."""
    return gang.main(parse(argv), run_rank)
