"""Collectives of torch.distributed whose every element is known beforehand.

Buffers are filled and checked in pieces, so that a case needs little more memory than what it sends and receives.
"""

from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

ITEM_BYTES = 4
# of float32 that are sums of few small numbers: a result is right or wrong and never nearly right
PATTERN = 13
DESTINATION = 100
# what no pattern holds: a result that was never written is wrong
POISON = -1.0
# elements handled at a time
PIECE = PATTERN << 18
# the most buffers that a case has, each of its whole size
BUFFERS = 2


class Block(NamedTuple):
    """`length` elements from `at` on that hold factor * pattern(start …) + add."""

    at: int
    length: int
    start: int
    factor: float
    add: float


class Case(NamedTuple):
    """One collective at one size: `given` describes `data` before each run, `expected` describes `result` after it."""

    data: Any
    given: List[Block]
    result: Any
    expected: List[Block]
    run: Callable[[], Any]

    @property
    def size_bytes(self) -> int:
        """The larger of the two buffers: what nccl-tests calls the size."""
        count: int = max(self.data.numel(), self.result.numel())
        return count * ITEM_BYTES


class Cases:
    """Builds, fills and checks the cases of one rank among `world`."""

    def __init__(self, torch: Any, rank: int, world: int, device: Any) -> None:
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.world, self.device = rank, world, device
        self.rank_sum = float(world * (world - 1) // 2)
        index = torch.arange(PIECE + PATTERN, device=device, dtype=torch.int64)
        self.pattern = (index % PATTERN).to(torch.float32)

    def case(self, collective: str, size_bytes: int) -> Case:
        count = max(1, size_bytes // ITEM_BYTES)
        if collective in ("all_gather", "reduce_scatter", "all_to_all"):
            count = max(1, count // self.world) * self.world
        case: Case = getattr(self, collective)(count)
        return case

    def all_reduce(self, count: int) -> Case:
        data = self.empty(count)
        expected = [Block(0, count, 0, float(self.world), self.rank_sum)]
        return Case(data, [self.own(count)], data, expected, lambda: self.dist.all_reduce(data))

    def broadcast(self, count: int) -> Case:
        data = self.empty(count)
        expected = [Block(0, count, 0, 1.0, 0.0)]
        return Case(data, [self.own(count)], data, expected, lambda: self.dist.broadcast(data, 0))

    def all_gather(self, count: int) -> Case:
        part = count // self.world
        data, result = self.empty(part), self.empty(count)
        expected = [Block(part * rank, part, 0, 1.0, float(rank)) for rank in range(self.world)]
        own = [self.own(part)]
        return Case(data, own, result, expected, lambda: self.dist.all_gather_into_tensor(result, data))

    def reduce_scatter(self, count: int) -> Case:
        part = count // self.world
        data, result = self.empty(count), self.empty(part)
        expected = [Block(0, part, part * self.rank, float(self.world), self.rank_sum)]
        own = [self.own(count)]
        return Case(data, own, result, expected, lambda: self.dist.reduce_scatter_tensor(result, data))

    def all_to_all(self, count: int) -> Case:
        part = count // self.world
        data, result = self.empty(count), self.empty(count)
        ranks = range(self.world)
        given = [Block(part * to, part, 0, 1.0, float(self.rank + DESTINATION * to)) for to in ranks]
        expected = [Block(part * came, part, 0, 1.0, float(came + DESTINATION * self.rank)) for came in ranks]
        return Case(data, given, result, expected, lambda: self.dist.all_to_all_single(result, data))

    def sendrecv(self, count: int) -> Case:
        """Each rank sends to the next and receives from the one before, all at once, as nccl-tests does."""
        data, result = self.empty(count), self.empty(count)
        after, before = (self.rank + 1) % self.world, (self.rank - 1) % self.world

        def run() -> None:
            send = self.dist.P2POp(self.dist.isend, data, after)
            receive = self.dist.P2POp(self.dist.irecv, result, before)
            for work in self.dist.batch_isend_irecv([send, receive]):
                work.wait()

        return Case(data, [self.own(count)], result, [Block(0, count, 0, 1.0, float(before))], run)

    def own(self, count: int) -> Block:
        """Return what this rank brings: the pattern and its number."""
        return Block(0, count, 0, 1.0, float(self.rank))

    def empty(self, count: int) -> Any:
        return self.torch.empty(count, device=self.device, dtype=self.torch.float32)

    def fill(self, case: Case) -> None:
        for part, values in self.pieces(case.data, case.given):
            part.copy_(values)

    def poison(self, case: Case) -> None:
        """So that what an earlier run left is not taken for this one's."""
        if case.result is not case.data:
            case.result.fill_(POISON)

    def wrong(self, case: Case) -> int:
        """How many elements are not what they must be."""
        return sum(int((part != values).sum().item()) for part, values in self.pieces(case.result, case.expected))

    def pieces(self, tensor: Any, blocks: List[Block]) -> Iterator[Tuple[Any, Any]]:
        """Parts of a buffer with the values that belong there."""
        for block in blocks:
            for done in range(0, block.length, PIECE):
                count = min(PIECE, block.length - done)
                start = (block.start + done) % PATTERN
                values = (self.pattern[start : start + count] * block.factor).add_(block.add)
                yield tensor[block.at + done : block.at + done + count], values
