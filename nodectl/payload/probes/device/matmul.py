"""Matrix products: which precisions a device has, the shape at which it is fastest, its rate, and if it is right."""

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .cuda import Cuda, is_out_of_memory

MIB = 1 << 20
# rows, columns, depth: from small to large, as a slow device stops early
SHAPES = (
    *((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)),
    *((4096, 4096, 16384), (8192, 8192, 4096), (8192, 8192, 8192), (8192, 8192, 16384)),
    *((16384, 8192, 4096), (16384, 16384, 8192), (16384, 16384, 16384)),
)
# a GPU's rate is of no interest at these
_LEAST_GPU = 2048
_TRIAL_S, _FINAL_S, _FINALISTS = 0.04, 0.2, 3
# operands of several products, so that none lies in a cache when its turn comes
_TIMES_CACHE = 4
_CACHE_BYTES = 64 * MIB
_MOST_SETS = 8
_CHECKED_ROWS = 8
_CHUNK = 1024
# torch 2.1 and 2.2 have fp8 on H100 only
_REFUSED = ("only supported", "not supported", "not_supported", "not implemented", "unsupported")


class Precision(NamedTuple):
    """`relative` is what its rounding makes of a product, over the root mean square of all elements."""

    dtype: str
    capability: Tuple[int, int]
    item_bytes: int
    relative: float


PRECISIONS = {
    "bf16": Precision("bfloat16", (8, 0), 2, 1e-2),
    "fp16": Precision("float16", (7, 0), 2, 5e-3),
    "tf32": Precision("float32", (8, 0), 4, 5e-3),
    "fp32": Precision("float32", (0, 0), 4, 1e-4),
    "fp8": Precision("float8_e4m3fn", (8, 9), 1, 5e-2),
}
ON_CPU = ("fp32", "bf16")
# an element that is off by so many times the usual rounding is wrong
_WRONG_TIMES = 8.0


class Choice(NamedTuple):
    """A product: rows, columns, depth; the second operand as it is (nn) or transposed (nt)."""

    shape: Tuple[int, int, int]
    layout: str

    @property
    def operations(self) -> int:
        """Return the floating-point operations of one product."""
        rows, columns, depth = self.shape
        return 2 * rows * columns * depth


class Operands(NamedTuple):
    """One product."""

    a: Any
    b: Any
    out: Any


class Measured(NamedTuple):
    """Rates of the runs in TFLOP/s, and how many of the elements that were checked are wrong."""

    rates: List[float]
    passes: int
    sets: int
    checked: int
    wrong: int
    changed: int
    error: float


def lacks(cuda: Cuda, name: str, gpu: Optional[int]) -> str:
    """Return why this device has no such precision; "" if it has."""
    wanted, torch = PRECISIONS[name], cuda.torch
    if gpu is None:
        return "" if name in ON_CPU else "a processor has no %s" % name
    have = torch.cuda.get_device_capability(gpu)
    if have < wanted.capability:
        return "needs compute capability %d.%d, this GPU has %d.%d" % (*wanted.capability, *have)
    if name == "fp8" and not (hasattr(torch, "_scaled_mm") and hasattr(torch, wanted.dtype)):
        return "torch %s has no fp8 product" % torch.__version__
    return ""


class Bench:
    """Products of one precision on one device."""

    def __init__(self, cuda: Cuda, name: str, gpu: Optional[int], memory_bytes: int, cache_bytes: int = 0) -> None:
        self.cuda, self.torch, self.name, self.gpu = cuda, cuda.torch, name, gpu
        self.precision = PRECISIONS[name]
        self.device, torch = cuda.device(gpu), cuda.torch
        self.memory_bytes = memory_bytes
        self.cache_bytes = cache_bytes or _CACHE_BYTES
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        if name == "fp8":
            self.one = torch.ones((), dtype=torch.float32, device=self.device)
            # torch 2.1 has no such option
            self.options: Dict[str, Any] = {"use_fast_accum": gpu is not None}
            self.product: Callable[[Operands], Any] = self._scaled
        else:
            self.product = lambda given: torch.matmul(given.a, given.b, out=given.out)

    def refusal(self) -> str:
        """In torch's words, that this version of it has no such product on this device; empty if it has."""
        try:
            self.product(self.operands(Choice(SHAPES[0], "nt"), 0))
        except RuntimeError as error:
            text = str(error).strip() or type(error).__name__
            if not any(word in text.lower() for word in _REFUSED):
                raise
            return "torch %s: %s" % (self.torch.__version__, text.splitlines()[0])
        return ""

    def search(self, seconds: float) -> Choice:
        """Return the fastest choice: a short trial of each, a longer one of the best few."""
        rates: Dict[Choice, float] = {}
        layouts = ("nt",) if self.name == "fp8" else ("nn", "nt")
        shapes = [shape for shape in SHAPES if self.gpu is None or min(shape) >= _LEAST_GPU]
        for choice in [Choice(shape, layout) for shape in shapes for layout in layouts]:
            predicted_s = choice.operations / max(rates.values()) if rates else 0.0
            if self._bytes(choice) > self.memory_bytes or predicted_s > seconds:
                continue
            try:
                rates[choice] = self._rate(choice, min(_TRIAL_S, seconds))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self.memory_bytes = self._bytes(choice) // 2
                if self.gpu is not None:
                    self.torch.cuda.empty_cache()
        if not rates:
            raise RuntimeError("%s: not enough free memory for a product of %dx%dx%d" % (self.name, *SHAPES[0]))
        best = sorted(rates, key=lambda choice: -rates[choice])[:_FINALISTS]
        return max(best, key=lambda choice: self._rate(choice, min(_FINAL_S, seconds)))

    def measure(self, choice: Choice, seconds: float, runs: int, ready: Callable[[], None]) -> Measured:
        """Each run lasts about `seconds`, and begins when all others are ready as well."""
        beyond_cache = -(-_TIMES_CACHE * self.cache_bytes // self._bytes(choice))
        sets = max(1, min(_MOST_SETS, self.memory_bytes // self._bytes(choice), beyond_cache))
        operands = [self.operands(choice, number) for number in range(sets)]
        for operand in operands:
            self.product(operand)
        passes = self._passes(operands, seconds)
        first = self.product(operands[0]).clone()
        rates, changed = [], 0
        for _ in range(runs):
            ready()
            rates.append(choice.operations / self._takes_s(operands, passes, 2 * seconds) / 1e12)
            # the same product has the same bits, however often it is computed
            changed += int((self.product(operands[0]) != first).sum().item())
        checked, wrong, error = self.check(operands[0], self.product(operands[0]))
        return Measured(rates, passes, sets, checked, wrong, changed, error)

    def operands(self, choice: Choice, seed: int) -> Operands:
        """Draw operands of normal distribution: on zeros a GPU draws less power and is faster than on anything real."""
        torch, (rows, columns, depth) = self.torch, choice.shape
        chance = torch.Generator(device=self.device)
        chance.manual_seed(seed)
        draw = torch.float32 if self.name in ("fp8", "tf32", "fp32") or self.gpu is None else None
        dtype = getattr(torch, self.precision.dtype)

        def normal(*size: int) -> Any:
            values = torch.randn(size, generator=chance, device=self.device, dtype=draw or dtype)
            return values if values.dtype == dtype else values.to(dtype)

        a = normal(rows, depth)
        b = normal(columns, depth).t() if choice.layout == "nt" else normal(depth, columns)
        out = torch.empty(rows, columns, device=self.device, dtype=torch.bfloat16 if self.name == "fp8" else dtype)
        return Operands(a, b, out)

    def _takes_s(self, operands: Sequence[Operands], passes: int, most_s: float) -> float:
        """Return the seconds of one product, over so many, one set of operands after the other.

        Processors, which others may use as well, stop after `most_s`.
        """
        if self.gpu is None:
            began, done, took = time.perf_counter(), 0, 0.0
            while done < passes and took < most_s:
                self.product(operands[done % len(operands)])
                done += 1
                took = time.perf_counter() - began
            return took / done

        def work() -> None:
            for number in range(passes):
                self.product(operands[number % len(operands)])

        return self.cuda.seconds(work) / passes

    def check(self, given: Operands, out: Any) -> Tuple[int, int, float]:
        """(elements checked, wrong ones, largest error over the usual size): some rows against fp64."""
        torch = self.torch
        count, last = min(_CHECKED_ROWS, out.shape[0]), out.shape[0] - 1
        rows = [number * last // max(1, count - 1) for number in range(count)]

        # one at a time: indexing by a list is not there for every type
        def chosen(matrix: Any) -> Any:
            return torch.stack([matrix[row].cpu().double() for row in rows])

        a, products = chosen(given.a), chosen(out)
        wrong, worst = 0, 0.0
        for start in range(0, out.shape[1], _CHUNK):
            exact = a @ given.b[:, start : start + _CHUNK].cpu().double()
            usual = float(exact.pow(2).mean().sqrt()) or 1.0
            off = (products[:, start : start + _CHUNK] - exact).abs() / usual
            # not a number is wrong, too
            wrong += int((~(off <= _WRONG_TIMES * self.precision.relative)).sum())
            worst = max(worst, float(off.nan_to_num(nan=float("inf"), posinf=float("inf")).max()))
        return len(rows) * int(out.shape[1]), wrong, worst

    def _scaled(self, given: Operands) -> Any:
        scaling = {"scale_a": self.one, "scale_b": self.one, "out_dtype": self.torch.bfloat16}
        try:
            product = self.torch._scaled_mm(given.a, given.b, **scaling, **self.options)
        except TypeError:
            if not self.options:
                raise
            self.options = {}
            product = self.torch._scaled_mm(given.a, given.b, **scaling)
        # before torch 2.5 the largest element stood beside the product
        return product[0] if isinstance(product, tuple) else product

    def _rate(self, choice: Choice, seconds: float) -> float:
        operands = [self.operands(choice, 0)]
        self._takes_s(operands, 1, seconds)
        return choice.operations / self._takes_s(operands, self._passes(operands, seconds), seconds)

    def _passes(self, operands: Sequence[Operands], seconds: float) -> int:
        """Return how many fill this time; a first few tell how long one takes."""
        once = max(1e-6, self._takes_s(operands, 1, seconds))
        few = max(1, min(20, int(seconds / 4 / once)))
        return max(1, round(seconds / max(1e-6, self._takes_s(operands, few, seconds))))

    def _bytes(self, choice: Choice) -> int:
        rows, columns, depth = choice.shape
        # those of fp8 are drawn in fp32
        drawn = max(rows, columns) * depth * 4 if self.name == "fp8" else 0
        return (rows * depth + depth * columns) * self.precision.item_bytes + rows * columns * 4 + drawn
