"""Hardware, stack and tuning that cannot work together: why, and what would; the rows behind it are in compat.yml.

First hardware with stack, then NCCL variables with NCCL's version, then PyTorch with the builds that there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.common.spelling import misspelt
from nodectl.errors import ProfileError
from nodectl.profiles.addresses import addresses
from nodectl.profiles.families import families
from nodectl.profiles.matrix import GpuRow, Matrix, TorchRow
from nodectl.profiles.nccl import (
    FINDS_GID_INDEX,
    asks_for_ib,
    finds_gid_index,
    variable,
    version_key,
    why_not_together,
)
from nodectl.profiles.schema import Hardware, PythonRange, Stack, Tuning

_THEMSELVES = "the profiles themselves"
_LIBRARIES = {"cudnn": "cuDNN", "nccl": "NCCL"}
# PyTorch's names for its builds: of CUDA, of the CPU, of other makers' GPUs
_BUILD = re.compile(r"cu[0-9]+|cpu|rocm[0-9.]+|xpu")
# from this version on a collective without an allowed algorithm is an error
_STRICT_ALGORITHMS = "2.24"


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason why something cannot work, or may not; without a source it is general knowledge, which only warns.

    `nearest` is one change after which it works.
    """

    code: str
    reason: str
    source: str
    nearest: str = ""
    # a warning even though somebody says so: it costs something, but works
    mild: bool = False
    # without a nearest choice of its own another stack is named
    other_stack: bool = False
    # the profiles are those of another machine; nodectl_misfit: allow makes it a warning
    misfit: bool = False

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
        """Return the problems that refuse; the others only warn."""
        return tuple(problem for problem in self.problems if problem.refuses)


def profile_problems(hardware: Hardware, stack: Stack, tuning: Tuning, matrix: Matrix) -> Iterator[Problem]:
    """Reasons why these profiles cannot work together, or may not; none where they can."""
    yield from _gpus_and_cuda(hardware, stack)
    yield from _architecture(hardware, stack)
    for capability in dict.fromkeys(group.compute_capability for group in hardware.groups):
        yield from gpu_problems(capability, stack, matrix, hardware.architecture)
    yield from _driver(stack, matrix)
    of_torch = list(torch_problems(stack, matrix))
    yield from of_torch
    # a range of Python that no wheel of torch reaches is told once
    python_named = any(problem.code in ("python-outside-wheel", "python-range") for problem in of_torch)
    yield from (problem for problem in _numpy(stack, matrix) if not python_named or problem.code != "numpy-python")
    yield from _systems(stack)
    for system in stack.os:
        yield from glibc_problems(system, stack, matrix)
    yield from nccl_problems(tuning.nccl_env(stack.nccl), stack.nccl)
    yield from _gid_index(hardware, stack, tuning)
    yield from _ib_network(hardware, tuning.nccl_env(stack.nccl))
    yield from _costs(hardware, tuning.nccl_env(stack.nccl))
    for kind, notes in (("stack", stack.unverified), ("hardware", hardware.unverified)):
        for field, why in sorted(notes.items()):
            yield Problem("unverified", f"the {kind}'s {field} is not confirmed: {why}", "")


def _architecture(hardware: Hardware, stack: Stack) -> Iterator[Problem]:
    if hardware.architecture and stack.architectures and hardware.architecture not in stack.architectures:
        claimed = ", ".join(stack.architectures)
        reason = f"the stack exists for {claimed}, and the hardware is {hardware.architecture}"
        source = stack.sources.get("architectures", _THEMSELVES)
        yield Problem("architecture-of-hardware", reason, source, other_stack=True)


def gpu_problems(capability: str, stack: Stack, matrix: Matrix, architecture: str | None = None) -> Iterator[Problem]:
    """Yield the problems of GPUs of a compute capability with the stack's CUDA, torch and driver.

    None: of any machine.
    """
    if stack.cuda is None:
        return
    row = matrix.gpu(capability)
    if row is None:
        reason = f"compute capability {capability} is not in the matrix, so nothing was compared"
        yield Problem("gpu-unknown", reason, "")
    of_cuda = list(_gpu_and_cuda(row, stack, matrix)) if row else []
    yield from of_cuda
    # what no library of this CUDA holds code for need not be looked for in torch
    runs = all(problem.mild for problem in of_cuda)
    if runs:
        yield from _kernels(capability, stack, matrix, architecture)
    if row and runs:
        yield from _gpu_and_driver(row, stack)
    yield from _flavour(capability, stack, matrix)


def _kernels(capability: str, stack: Stack, matrix: Matrix, architecture: str | None) -> Iterator[Problem]:
    machines = (architecture,) if architecture else stack.architectures or ("x86_64",)
    rows = [matrix.kernel_row(stack, machine) for machine in machines]
    builds = [row for row in rows if row is not None]
    if not builds or any(row.serves(capability) for row in builds):
        return
    held = " or ".join(dict.fromkeys(", ".join(row.capabilities) for row in builds))
    reason = f"torch {stack.torch} with CUDA {stack.cuda} holds code for {held}, and not for {capability}"
    on = f" on {architecture}" if architecture else ""
    source = "; ".join(dict.fromkeys(row.source for row in builds))
    yield Problem("gpu-without-kernels", reason + on, source, other_stack=True)


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


# what NCCL says then
_NO_IB = "NCCL ends with 'network IB not found'"


def _ib_network(hardware: Hardware, env: Mapping[str, str]) -> Iterator[Problem]:
    if asks_for_ib(env) and hardware.gpus is not None and not hardware.has_rdma:
        reason = f"NCCL_NET=IB is set, and the hardware has neither InfiniBand nor RoCE: {_NO_IB}"
        yield Problem("nccl-net-ib", reason, "NCCL user guide, NCCL_NET", "no NCCL_NET")


def _is_on(value: str) -> bool:
    return value not in ("", "0")


# what takes away what the hardware was bought for: all of it works, and much slower
_COSTS: tuple[tuple[str, Mapping[str, Callable[[str], bool]], Callable[[Hardware], bool], str], ...] = (
    (
        "nccl-without-nvlink",
        {"NCCL_P2P_DISABLE": _is_on, "NCCL_P2P_LEVEL": lambda value: value in ("LOC", "0")},
        lambda hardware: hardware.link in ("nvswitch", "nvlink-bridge"),
        "takes NVLink away: GPUs of one host meet in its memory",
    ),
    (
        "nccl-without-rdma",
        {"NCCL_IB_DISABLE": _is_on, "NCCL_NET": lambda value: value.lower() == "socket"},
        lambda hardware: hardware.has_rdma,
        "leaves the RDMA ports unused: hosts meet over TCP, through the CPUs",
    ),
    (
        "nccl-without-gdr",
        {"NCCL_NET_GDR_LEVEL": lambda value: value in ("LOC", "0")},
        lambda hardware: hardware.has_rdma,
        "sends what GPUs exchange between hosts through the hosts' memory",
    ),
    (
        "nccl-without-nvls",
        {"NCCL_NVLS_ENABLE": lambda value: value == "0"},
        lambda hardware: hardware.reduces_in_switch,
        "takes the reduction in the NVSwitches away: all_reduce moves its data twice",
    ),
)


def _costs(hardware: Hardware, env: Mapping[str, str]) -> Iterator[Problem]:
    for code, variables, is_bought, lost in _COSTS:
        name = next((name for name, is_off in variables.items() if name in env and is_off(env[name])), None)
        if name and is_bought(hardware):
            yield Problem(code, f"{name}={env[name]} {lost}", f"NCCL user guide, {name}", f"no {name}", mild=True)


def _gpus_and_cuda(hardware: Hardware, stack: Stack) -> Iterator[Problem]:
    if hardware.gpus and stack.cuda is None and stack.torch is not None:
        reason = f"the hardware has {counted(hardware.gpus, 'GPU')}, which a stack without CUDA leaves idle"
        yield Problem("gpus-without-cuda", reason, _THEMSELVES, other_stack=True, misfit=True)
    if hardware.gpus == 0 and stack.cuda is not None:
        reason = f"the stack brings CUDA {stack.cuda}, and the hardware has no GPU"
        yield Problem("cuda-without-gpus", reason, _THEMSELVES, other_stack=True)


def _gpu_and_cuda(row: GpuRow, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    cuda, older = str(stack.cuda), row.runs and matrix.gpu(row.runs.code_of)
    runs_older = bool(older and version_key(older.min_cuda) <= version_key(cuda))
    if version_key(cuda) < version_key(row.min_cuda) and row.runs and runs_older:
        first = (
            f"{row.name}, compute capability {row.compute_capability}, has code of its own from CUDA {row.min_cuda} on"
        )
        reason = f"{first}; with {cuda} it runs that of {row.runs.code_of}: {row.runs.lost}"
        yield Problem("gpu-by-older-code", reason, row.runs.source, f"CUDA {row.min_cuda} or later", mild=True)
    elif version_key(cuda) < version_key(row.min_cuda):
        reason = f"{row.name}, compute capability {row.compute_capability}, needs CUDA {row.min_cuda}"
        yield Problem("gpu-newer-than-cuda", f"{reason}, and the stack brings {cuda}", row.source, other_stack=True)
    if row.dropped_by and version_key(cuda) >= version_key(row.dropped_by):
        reason = f"{row.name}, compute capability {row.compute_capability}, was dropped by CUDA {row.dropped_by}"
        yield Problem(
            "gpu-dropped-by-cuda", f"{reason}, and the stack brings {cuda}", row.dropped_source, other_stack=True
        )


def _gpu_and_driver(row: GpuRow, stack: Stack) -> Iterator[Problem]:
    other = row.other_driver(stack.driver.branch) if stack.driver else None
    if stack.driver and other:
        drivers, branch, source = other
        reason = f"{row.name}, compute capability {row.compute_capability}, {drivers}"
        installed = f"and the stack installs branch {stack.driver.branch}"
        nearest = f"driver branch {branch}"
        yield Problem("gpu-unknown-to-driver", f"{reason}, {installed}", source, nearest, other_stack=True)


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


def nccl_problems(env: Mapping[str, str], nccl: str | None) -> Iterator[Problem]:
    """Yield what NCCL makes of the variables, in a profile or on a host; without a version what every NCCL does."""
    if reason := why_not_together(env):
        yield Problem("nccl-net-ib-disabled", reason, "NCCL user guide, NCCL_NET", "no NCCL_NET")
    if nccl is None:
        return
    yield from _not_read(env, nccl)
    yield from _algorithm(env.get("NCCL_ALGO", ""), nccl)
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


def _not_read(env: Mapping[str, str], nccl: str) -> Iterator[Problem]:
    """Variables that this NCCL passes over without a word: nothing is as it was meant, and nothing fails."""
    for name in env:
        row = variable(name)
        if row is None:
            reason = f"{name} is set, and no NCCL that nodectl knows reads it"
        elif row.since and version_key(nccl) < version_key(row.since):
            reason = f"{name} is set, and NCCL {nccl} does not read it: {row.since} is the first that does"
        elif row.until and version_key(nccl) > version_key(row.until):
            reason = f"{name} is set, and NCCL {nccl} does not read it: {row.until} was the last that did"
        else:
            continue
        yield Problem("nccl-not-read", reason, "NCCL's sources of each version", f"no {name}", mild=True)


def _algorithm(value: str, nccl: str) -> Iterator[Problem]:
    """Yield a problem where a bare list, which is meant for all collectives, lacks Ring: only Ring can do them all."""
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


def torch_problems(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """Problems of a stack that contradicts the matrix's row of its torch, or has no row; none without torch."""
    if stack.torch is None or stack.python is None:
        return
    if version_key(stack.python.min) > version_key(stack.python.max):
        reason = f"python.min {stack.python.min} is above python.max {stack.python.max}"
        yield Problem("python-range", reason, _THEMSELVES, f"python.min {stack.python.max}")
    row, builds = matrix.torch_row(stack), matrix.torch_rows(stack.torch)
    if row is not None:
        yield from _build(stack, row)
    elif builds:
        yield _other_build(stack, builds)
    elif matrix.releases.deny(stack.torch):
        yield _not_released(stack, matrix)
    else:
        reason = f"torch {stack.torch} is not in the matrix: its Python, CUDA, cuDNN and NCCL were not compared"
        yield Problem("torch-unknown", reason, "")
    yield from _deepspeed(stack, matrix)
    yield from _torchvision(stack, matrix)


def _not_released(stack: Stack, matrix: Matrix) -> Problem:
    around = matrix.releases.nearest(stack.torch or "")
    reason = f"there is no torch {stack.torch}: PyTorch released none between {' and '.join(around)}"
    builds = [row for version in around for row in matrix.torch_rows(version)]
    # an index of a site may hold what the site has built
    of_site = "://" in (stack.index or "")
    return Problem("torch-not-released", reason, matrix.releases.source, _nearest_build(stack, builds), mild=of_site)


def _build(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    if "build" in row.unsure:
        reason = (
            f"whether PyTorch's index holds torch {stack.torch} for CUDA {row.cuda} is not confirmed ({row.source})"
        )
        yield Problem("torch-build-unsure", reason, "")
    yield from _names(stack, row)
    yield from _libraries(stack, row)
    yield from _python(stack, row)
    yield from _machines(stack, row)


def _names(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    """Yield problems where the index or the version's + names another build; uv goes by those.

    A site's index may be any.
    """
    index = (stack.index or "").rstrip("/").removeprefix(f"{addresses().pytorch}/")
    named = {"index": index, "torch": (stack.torch or "").partition("+")[2]}
    for field, name in named.items():
        if _BUILD.fullmatch(name) and name != row.index:
            reason = f"{field} names the build {name}, and CUDA {stack.cuda or 'none'} is the build {row.index}"
            yield Problem(f"{field}-of-another-build", reason, _THEMSELVES, _row_text(row), other_stack=True)


def _other_build(stack: Stack, builds: tuple[TorchRow, ...]) -> Problem:
    wanted = f"CUDA {stack.cuda}" if stack.cuda else "no CUDA"
    there = ", ".join(row.index for row in builds)
    reason = f"torch {stack.torch} with {wanted} is no build of PyTorch's: there are {there}"
    # a CPU build exists of every torch, whether or not the matrix holds it
    source = builds[0].source if stack.cuda else ""
    return Problem("torch-cuda-not-of-one-row", reason, source, _nearest_build(stack, builds), other_stack=True)


def _nearest_build(stack: Stack, builds: Iterable[TorchRow]) -> str:
    of_kind = [row for row in builds if bool(row.cuda) == bool(stack.cuda)]
    return _row_text(min(of_kind, key=lambda row: _distance(stack, row))) if of_kind else ""


def _row_text(row: TorchRow) -> str:
    parts = [f"{name} {value}" for name, value in (("cuDNN", row.cudnn), ("NCCL", row.nccl)) if value]
    cuda = f"CUDA {row.cuda}" if row.cuda else "no CUDA"
    return f"torch {row.torch} with {cuda}" + (f" ({', '.join(parts)})" if parts else "")


def _libraries(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    for field, name in _LIBRARIES.items():
        stated, bundled = getattr(stack, field), getattr(row, field)
        if stated is not None and bundled is not None and stated != bundled:
            reason = (
                f"torch {stack.torch} with CUDA {stack.cuda} loads {name} {bundled} of its wheel, and the stack says "
                f"{stated} (the system's {name} is system.{field})"
            )
            source = "" if {field, "build"} & set(row.unsure) else row.source
            yield Problem(f"torch-{field}-not-of-one-row", reason, source, f"{field}: {bundled}")


def _python(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    wanted = stack.python
    ranges = {row.python_of.get(machine, row.python): machine for machine in stack.architectures or row.architectures}
    for there, machine in ranges.items():
        if wanted and not _within(wanted, there):
            on = f" on {machine}" if row.python_of else ""
            reason = (
                f"torch {stack.torch} has wheels for Python {there.min} to {there.max}{on}, and the stack allows "
                f"{wanted.min} to {wanted.max}"
            )
            source = "" if "python" in row.unsure else row.source
            yield Problem("python-outside-wheel", reason, source, _python_within(wanted, there), other_stack=True)


def _within(wanted: PythonRange, there: PythonRange) -> bool:
    return version_key(there.min) <= version_key(wanted.min) and version_key(wanted.max) <= version_key(there.max)


def _python_within(wanted: PythonRange, there: PythonRange) -> str:
    low = max(wanted.min, there.min, key=version_key)
    high = min(wanted.max, there.max, key=version_key)
    inside = there if version_key(low) > version_key(high) else PythonRange(min=low, max=high)
    return f"python {inside.min} to {inside.max}"


def _machines(stack: Stack, row: TorchRow) -> Iterator[Problem]:
    lacking = [machine for machine in stack.architectures if machine not in row.architectures]
    if lacking:
        there = tuple(machine for machine in stack.architectures if machine in row.architectures) or row.architectures
        reason = f"torch {stack.torch} with CUDA {stack.cuda} has no wheels for {', '.join(lacking)}"
        source = "" if "architectures" in row.unsure else row.source
        nearest = f"architectures: {', '.join(there)}"
        yield Problem("architecture-outside-wheel", reason, source, nearest, other_stack=True)


def _numpy(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    numpy = _package(stack, "numpy")
    row = matrix.numpy_row(numpy) if numpy else None
    if row is None or stack.torch is None or stack.python is None:
        return
    torch = version_key(stack.torch.partition("+")[0])
    if row.torch_from and torch < version_key(row.torch_from):
        reason = f"torch {stack.torch} is built for numpy 1, and cannot use numpy {numpy}: 'Numpy is not available'"
        nearest = f"numpy 1.26.4 (Python 3.9 to 3.12) or older, or torch {row.torch_from} or later"
        yield Problem("numpy-torch", reason, row.torch_source, nearest, other_stack=True)
    if not _within(stack.python, row.python):
        reason = f"numpy {numpy} has wheels for Python {row.python.min} to {row.python.max}, and the stack allows "
        allowed = f"{stack.python.min} to {stack.python.max}"
        nearest = _python_within(stack.python, row.python)
        yield Problem("numpy-python", reason + allowed, row.source, nearest, other_stack=True)


def _systems(stack: Stack) -> Iterator[Problem]:
    for system in stack.os:
        name, _, version = system.partition("-")
        meant = _meant(name, version)
        if meant and meant != system:
            others = tuple(meant if other == system else other for other in stack.os)
            reason = f"os: no host is {system}, did you mean {meant}?"
            yield Problem("os-unknown", reason, _THEMSELVES, f"os: {', '.join(others)}")
        elif not meant:
            yield Problem("os-unknown", f"os: the roles know no {system}", "")


def _meant(name: str, version: str) -> str:
    by_name = {system: family for family in families() for system in family.systems}
    system = name if name in by_name else misspelt(name, by_name)
    if not system:
        return ""
    # Ubuntu's releases are of a month, all others are known by their major version
    form = version if system == "ubuntu" else version.partition(".")[0]
    return by_name[system].key(f"{system}-{form}")


def glibc_problems(system: str, stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """Yield a problem where the wheels of the stack's torch are built for a newer glibc than the system has."""
    row = matrix.system(system)
    for machine in stack.architectures or ("x86_64",):
        least = matrix.glibc_row(stack, machine) if stack.torch else None
        if row and least and version_key(row.glibc) < version_key(least.least):
            reason = f"torch {stack.torch} has wheels for glibc {least.least} and later, and {system} has {row.glibc}"
            yield Problem("system-outside-wheel", reason, f"{least.source}; {row.source}", other_stack=True)
            return


def _deepspeed(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    if stack.deepspeed is None or stack.torch is None:
        return
    torch = version_key(stack.torch.partition("+")[0])
    for row in matrix.deepspeed:
        if version_key(stack.deepspeed) < version_key(row.below) and torch >= version_key(row.torch_from):
            reason = f"DeepSpeed {stack.deepspeed} does not work with torch {stack.torch}: it {row.why}"
            nearest = f"deepspeed {row.below} or later, or torch before {row.torch_from}"
            yield Problem("deepspeed-torch", reason, row.source, nearest)


def _torchvision(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    torchvision, rows = _package(stack, "torchvision"), matrix.torchvision
    if torchvision and stack.torch and rows.serves(torchvision, stack.torch) is False:
        fitting = rows.of(stack.torch)
        nearest = f"torchvision {fitting}" if fitting else ""
        reason = f"torchvision {torchvision} is not built for torch {stack.torch}"
        yield Problem("torchvision-torch", reason, rows.source, nearest)


def _package(stack: Stack, wanted: str) -> str | None:
    return next((version for name, version in stack.packages.items() if name.lower() == wanted), None)


def nearest_stack(current: Stack, stacks: Mapping[str, Stack], works: Callable[[Stack], bool]) -> str:
    """Return the stack that works and is nearest to the current one, in words."""
    for name, stack in sorted(stacks.items(), key=lambda item: (_distance(current, item[1]), item[0])):
        if works(stack):
            return f"stack {name}"
    return "none of the stacks known here works with this hardware and host"


def _distance(current: Stack, other: Stack | TorchRow) -> tuple[float, ...]:
    """Return how far the other's CUDA is, then how old its torch is; for a stack without CUDA only the latter."""
    ours, theirs = _cuda_number(current.cuda), _cuda_number(other.cuda)
    newest = tuple(-part for part in version_key((other.torch or "0").partition("+")[0]))
    if ours is None or theirs is None:
        return (0.0 if ours is theirs else 1.0, *newest)
    return (abs(ours - theirs), *newest)


def _cuda_number(cuda: str | None) -> float | None:
    if cuda is None:
        return None
    major, minor, *_ = (*version_key(cuda), 0)
    return major * 100.0 + minor
