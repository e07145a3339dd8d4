"""Which hardware, stack and tuning cannot work together, why, and what would; the rows behind it are in compat.yml.

First hardware with stack, then NCCL variables with NCCL's version, then PyTorch with the builds that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodectl.errors import ProfileError
from nodectl.profiles.matrix import GpuRow, Matrix, TorchRow
from nodectl.profiles.nccl import FINDS_GID_INDEX, finds_gid_index, version_key
from nodectl.profiles.schema import Hardware, Stack, Tuning

_THEMSELVES = "the profiles themselves"
_LIBRARIES = {"cudnn": "cuDNN", "nccl": "NCCL"}
_MAX_SOCKETS = 64
# from this version on a collective without an allowed algorithm is an error
_STRICT_ALGORITHMS = "2.24"


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why something cannot work, or may not; without a source it is general knowledge, which only warns."""

    code: str
    reason: str
    source: str
    nearest: str = ""
    # a warning even though somebody says so: it costs something, but works
    mild: bool = False
    # another stack may be the way out
    other_stack: bool = False

    @property
    def refuses(self) -> bool:
        """The combination is refused, not merely warned about."""
        return bool(self.source) and not self.mild

    @property
    def text(self) -> str:
        """Reason, nearest working choice and source, in one line."""
        nearest = f"; nearest working choice: {self.nearest}" if self.nearest else ""
        source = f"source: {self.source}" if self.source else "general knowledge, no source"
        return f"{self.reason}{nearest} ({source})"


class IncompatibleError(ProfileError):
    """Well-formed profiles that cannot work together: exit status 1 as for a finding, not 2 as for a usage error."""

    exit_status = 1

    def __init__(self, message: str, remedy: str, problems: Sequence[Problem]) -> None:
        super().__init__(message, remedy)
        self.problems = tuple(problems)

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """Those of its problems that refuse; the others only warn."""
        return tuple(problem for problem in self.problems if problem.refuses)


def profile_problems(hardware: Hardware, stack: Stack, tuning: Tuning, matrix: Matrix) -> Iterator[Problem]:
    """Reasons why these profiles cannot work together, or may not; none where they can."""
    yield from _gpus_and_cuda(hardware, stack)
    if hardware.gpu:
        yield from gpu_problems(hardware.gpu.compute_capability, stack, matrix)
    yield from _driver(stack, matrix)
    yield from torch_problems(stack, matrix)
    yield from nccl_problems(tuning, stack.nccl)
    yield from _gid_index(hardware, stack, tuning)
    for field, why in sorted(stack.unverified.items()):
        yield Problem("unverified", f"the stack's {field} is not confirmed: {why}", "")


def gpu_problems(capability: str, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """What stands between GPUs of a compute capability and the stack's CUDA and driver."""
    if stack.cuda is None:
        return
    row = matrix.gpu(capability)
    if row is None:
        reason = f"compute capability {capability} is not in the matrix, so nothing was compared"
        yield Problem("gpu-unknown", reason, "")
    else:
        yield from _gpu_and_cuda(row, stack)
    yield from _flavour(capability, stack, matrix)


def _gid_index(hardware: Hardware, stack: Stack, tuning: Tuning) -> Iterator[Problem]:
    roce = any(nic.kind == "roce" for nic in hardware.nics)
    if roce and "NCCL_IB_GID_INDEX" not in tuning.nccl and not finds_gid_index(stack.nccl):
        yield Problem(
            "nccl-gid-index-missing",
            f"NCCL {stack.nccl} does not find the RoCE v2 GID index by itself",
            "NCCL user guide, networking troubleshooting",
            "NCCL_IB_GID_INDEX from show_gids in the host variable nodectl_nccl_env",
            mild=True,
        )


def _gpus_and_cuda(hardware: Hardware, stack: Stack) -> Iterator[Problem]:
    if hardware.gpus and stack.cuda is None:
        reason = f"the hardware has {hardware.gpus} GPUs, which a stack without CUDA leaves idle"
        yield Problem("gpus-without-cuda", reason, _THEMSELVES, other_stack=True)
    if hardware.gpus == 0 and stack.cuda is not None:
        reason = f"the stack brings CUDA {stack.cuda}, and the hardware has no GPU"
        yield Problem("cuda-without-gpus", reason, _THEMSELVES, other_stack=True)


def _gpu_and_cuda(row: GpuRow, stack: Stack) -> Iterator[Problem]:
    cuda = str(stack.cuda)
    if version_key(cuda) < version_key(row.min_cuda):
        reason = f"{row.name}, compute capability {row.compute_capability}, needs CUDA {row.min_cuda}"
        yield Problem("gpu-newer-than-cuda", f"{reason}, and the stack brings {cuda}", row.source, other_stack=True)
    if row.dropped_by and version_key(cuda) >= version_key(row.dropped_by):
        reason = f"{row.name}, compute capability {row.compute_capability}, was dropped by CUDA {row.dropped_by}"
        yield Problem(
            "gpu-dropped-by-cuda", f"{reason}, and the stack brings {cuda}", row.dropped_source, other_stack=True
        )


def _flavour(capability: str, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    for row in matrix.flavours:
        if stack.driver is None or stack.driver.flavour != row.flavour:
            continue
        other = "proprietary" if row.flavour == "open" else "open"
        nearest = f"driver flavour {other} (nodectl_overrides: stack.driver)"
        modules = f"the stack's driver has the {row.flavour} kernel modules, which compute capability {capability}"
        if row.from_capability and version_key(capability) < version_key(row.from_capability):
            reason = f"{modules} cannot use: they are for {row.from_capability} and later"
            yield Problem("flavour-open", reason, row.source, nearest, other_stack=True)
        if row.below_capability and version_key(capability) >= version_key(row.below_capability):
            reason = f"{modules} cannot use: from {row.below_capability} on only the other ones work"
            yield Problem("flavour-proprietary", reason, row.source, nearest, other_stack=True)


def _driver(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    if stack.cuda is None:
        return
    row = matrix.cuda_row(stack.cuda)
    if row is None:
        yield Problem("cuda-unknown", f"CUDA {stack.cuda} is not in the matrix, so no driver was compared", "")
        return
    if stack.driver and version_key(stack.driver.branch) < version_key(row.min_driver)[:1]:
        reason = f"CUDA {stack.cuda} needs driver {row.min_driver}, and the stack installs branch {stack.driver.branch}"
        nearest = f"driver branch {version_key(row.min_driver)[0]}"
        yield Problem("driver-branch-too-old", reason, row.source, nearest, other_stack=True)
    if stack.driver and version_key(stack.driver.min) < version_key(row.min_driver):
        reason = f"CUDA {stack.cuda} needs driver {row.min_driver}, and the stack is content with {stack.driver.min}"
        yield Problem("driver-min-too-old", reason, row.source, f"driver.min {row.min_driver}")


def nccl_problems(tuning: Tuning, nccl: str | None) -> Iterator[Problem]:
    """What this NCCL makes of the tuning's variables; nothing for a stack without NCCL."""
    if nccl is None:
        return
    env = tuning.nccl_env(nccl)
    yield from _algorithm(env.get("NCCL_ALGO", ""), nccl)
    yield from _sockets(env)
    if "NCCL_IB_GID_INDEX" in env and finds_gid_index(nccl):
        yield Problem(
            "nccl-gid-index",
            f"NCCL_IB_GID_INDEX is set, and NCCL {nccl} finds the index by itself from {FINDS_GID_INDEX} on",
            "NCCL user guide, networking troubleshooting",
            "no NCCL_IB_GID_INDEX",
            mild=True,
        )
    protocols = env.get("NCCL_PROTO", "")
    if "LL128" in protocols.upper() and not protocols.startswith("^"):
        yield Problem(
            "nccl-ll128",
            f"NCCL_PROTO={protocols} forces LL128 also where the platform does not keep its data whole",
            "NCCL user guide, NCCL_PROTO; NVIDIA/nccl issue 1081",
            "no NCCL_PROTO",
            mild=True,
        )


def _algorithm(value: str, nccl: str) -> Iterator[Problem]:
    """A bare list is meant for all collectives; only Ring can do them all."""
    if version_key(nccl) < version_key(_STRICT_ALGORITHMS) or not value or value[0] == "^":
        return
    everywhere = [part for part in value.lower().split(";") if ":" not in part]
    named = {algorithm.strip() for part in everywhere for algorithm in part.split(",")}
    meant = ",".join(sorted(named))
    if everywhere and "ring" not in named:
        yield Problem(
            "nccl-algo-bare",
            f"NCCL_ALGO={value} makes every collective but all_reduce fail with NCCL {nccl}: "
            f"from {_STRICT_ALGORITHMS} on there is no fallback",
            "NCCL user guide, NCCL_ALGO; NCCL 2.30.7, src/enqueue.cc",
            f"NCCL_ALGO=ring,{meant};allreduce:{meant}",
        )


def _sockets(env: dict[str, str]) -> Iterator[Problem]:
    threads, sockets = env.get("NCCL_SOCKET_NTHREADS", ""), env.get("NCCL_NSOCKS_PERTHREAD", "")
    if threads.isdecimal() and sockets.isdecimal() and int(threads) * int(sockets) > _MAX_SOCKETS:
        lowered = _MAX_SOCKETS // max(int(threads), 1)
        yield Problem(
            "nccl-sockets",
            f"NCCL_SOCKET_NTHREADS={threads} with NCCL_NSOCKS_PERTHREAD={sockets} are more than {_MAX_SOCKETS} "
            "sockets, which NCCL lowers",
            "NCCL source, net_socket.cc",
            f"NCCL_NSOCKS_PERTHREAD={lowered}",
            mild=True,
        )


def torch_problems(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """Problems of a stack that contradicts the matrix's row of its torch, or has no row."""
    if version_key(stack.python.min) > version_key(stack.python.max):
        reason = f"python.min {stack.python.min} is above python.max {stack.python.max}"
        yield Problem("python-range", reason, _THEMSELVES, f"python.min {stack.python.max}")
    row, builds = matrix.torch_row(stack), matrix.torch_rows(stack.torch)
    if row is not None:
        yield from _libraries(stack, row)
        yield from _python(stack, row)
    elif builds:
        yield _other_build(stack, builds)
    else:
        reason = f"torch {stack.torch} is not in the matrix: its Python, CUDA, cuDNN and NCCL were not compared"
        yield Problem("torch-unknown", reason, "")
    yield from _deepspeed(stack, matrix)


def _other_build(stack: Stack, builds: tuple[TorchRow, ...]) -> Problem:
    wanted = f"CUDA {stack.cuda}" if stack.cuda else "no CUDA"
    reason = f"torch {stack.torch} with {wanted} is no row of the matrix"
    nearest = " or ".join(sorted({_row_text(row) for row in builds}))
    # a CPU build exists of every torch, whether or not the matrix holds it
    source = builds[0].source if stack.cuda else ""
    return Problem("torch-cuda-not-of-one-row", reason, source, nearest, other_stack=True)


def _row_text(row: TorchRow) -> str:
    parts = [f"{name} {value}" for name, value in (("cuDNN", row.cudnn), ("NCCL", row.nccl)) if value]
    return f"torch {row.torch} with CUDA {row.cuda}" + (f" ({', '.join(parts)})" if parts else "")


def _libraries(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    for field, name in _LIBRARIES.items():
        stated, known = getattr(stack, field), getattr(row, field)
        if stated is not None and known is not None and stated != known:
            reason = (
                f"torch {stack.torch} with CUDA {stack.cuda} loads {name} {known} of its wheel, and the stack says "
                f"{stated} (the system's {name} is system.{field})"
            )
            source = "" if field in row.unsure else row.source
            yield Problem(f"torch-{field}-not-of-one-row", reason, source, f"{field}: {known}")


def _python(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    low, high = row.python.min, row.python.max
    if version_key(stack.python.min) < version_key(low) or version_key(stack.python.max) > version_key(high):
        reason = (
            f"torch {stack.torch} has wheels for Python {low} to {high}, and the stack allows "
            f"{stack.python.min} to {stack.python.max}"
        )
        source = "" if "python" in row.unsure else row.source
        yield Problem("python-outside-wheel", reason, source, _python_choice(stack, row), other_stack=True)


def _python_choice(stack: Stack, row: TorchRow) -> str:
    low = max(stack.python.min, row.python.min, key=version_key)
    high = min(stack.python.max, row.python.max, key=version_key)
    if version_key(low) > version_key(high):
        low, high = row.python.min, row.python.max
    return f"python {low} to {high}"


def _deepspeed(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    if stack.deepspeed is None:
        return
    torch = version_key(stack.torch.partition("+")[0])
    for row in matrix.deepspeed:
        if version_key(stack.deepspeed) < version_key(row.below) and torch >= version_key(row.torch_from):
            reason = f"DeepSpeed {stack.deepspeed} does not work with torch {stack.torch}: it {row.why}"
            nearest = f"deepspeed {row.below} or later, or torch before {row.torch_from}"
            yield Problem("deepspeed-torch", reason, row.source, nearest)


def with_nearest(
    problems: Iterable[Problem],
    current: Stack,
    stacks: Callable[[], Mapping[str, Stack]],
    fits: Callable[[Stack], bool],
) -> tuple[Problem, ...]:
    """The problems, with the nearest stack named where another stack is a way out; stacks are read only then."""
    listed = tuple(problems)
    if not any(problem.other_stack for problem in listed):
        return listed
    working = {name: stack for name, stack in stacks().items() if fits(stack)}
    name = min(working, key=lambda name: (_distance(current, working[name]), name), default=None)
    return tuple(_naming(name, problem) if problem.other_stack else problem for problem in listed)


def _distance(current: Stack, other: Stack) -> tuple[float, ...]:
    """How far the other stack's CUDA is, then how old its torch is; for a stack without CUDA only the latter."""
    ours, theirs = _cuda_number(current), _cuda_number(other)
    newest = tuple(-part for part in version_key(other.torch.partition("+")[0]))
    if ours is None or theirs is None:
        return (0.0 if ours is theirs else 1.0, *newest)
    return (abs(ours - theirs), *newest)


def _cuda_number(stack: Stack) -> float | None:
    """12.1 as 1201: a step of a major version is further than any minor one."""
    if stack.cuda is None:
        return None
    major, minor, *_ = (*version_key(stack.cuda), 0)
    return major * 100.0 + minor


def _naming(stack: str | None, problem: Problem) -> Problem:
    """The problem with this stack as its nearest working choice, before the choice that it names itself."""
    choices = " or ".join(filter(None, (stack and f"stack {stack}", problem.nearest)))
    return replace(problem, nearest=choices or "none of the stacks known here works with this hardware and host")
