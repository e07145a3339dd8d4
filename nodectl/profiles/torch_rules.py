"""What torch's wheel brings, against what a stack says of it: CUDA, cuDNN and NCCL of one row, Python in its range."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.profiles.matrix import Matrix, TorchRow
from nodectl.profiles.nccl import version_key
from nodectl.profiles.problem import Problem
from nodectl.profiles.schema import Stack

_LIBRARIES = {"cudnn": "cuDNN", "nccl": "NCCL"}


def torch_problems(stack: Stack, matrix: Matrix) -> Iterator[Problem]:
    """Where the stack contradicts the matrix's row of its torch, or has none."""
    if version_key(stack.python.min) > version_key(stack.python.max):
        reason = f"python.min {stack.python.min} is above python.max {stack.python.max}"
        yield Problem("python-range", reason, "the profiles themselves", f"python.min {stack.python.max}")
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
        said, known = getattr(stack, field), getattr(row, field)
        if said is not None and known is not None and said != known:
            reason = (
                f"torch {stack.torch} with CUDA {stack.cuda} loads {name} {known} of its wheel, and the stack says "
                f"{said} (the system's {name} is system.{field})"
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
