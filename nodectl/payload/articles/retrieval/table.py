"""The embedding table of the retrieval measurement: made from a seed, any part of it on any host, searched exactly.

Values are small whole numbers, so that every score is exact in float32 on every device, in whatever order it is summed.
"""

from typing import Any, Iterator, Tuple

from ...common.machine import available_bytes

BLOCK_ROWS = 4096
LARGEST = 15
# whole numbers up to 2 ** 24 are exact in float32
MOST_DIM = 2**24 // (LARGEST * LARGEST)
ITEM_BYTES = 4
# of the memory that is free, what a shard may take: the table, a block in the making, and the scores of a batch
MEMORY_PART = 0.5


def shard(rows: int, rank: int, count: int) -> range:
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


def make(torch: Any, seed: int, rows: range, dim: int, device: Any) -> Any:
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
