"""The nearest working choice: computed, by asking each stack whether it would be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nodectl.profiles.nccl import version_key
from nodectl.profiles.problem import Problem
from nodectl.profiles.schema import Stack


def with_nearest(
    found: Iterable[Problem],
    current: Stack,
    stacks: Callable[[], Mapping[str, Stack]],
    fits: Callable[[Stack], bool],
) -> tuple[Problem, ...]:
    """`found`, with the nearest stack named where another stack is a way out; stacks are read only then."""
    problems = tuple(found)
    if not any(problem.other_stack for problem in problems):
        return problems
    name = nearest_stack(current, {name: stack for name, stack in stacks().items() if fits(stack)})
    return tuple(_joined(problem, name) if problem.other_stack else problem for problem in problems)


def nearest_stack(current: Stack, working: Mapping[str, Stack]) -> str | None:
    """The working stack whose CUDA is nearest; for a stack without CUDA the newest; None where none works."""
    if not working:
        return None
    return min(working, key=lambda name: (_distance(current, working[name]), name))


def _distance(current: Stack, other: Stack) -> tuple[float, ...]:
    mine, theirs = _number(current), _number(other)
    newest = tuple(-part for part in version_key(other.torch.partition("+")[0]))
    if mine is None or theirs is None:
        return (0.0 if mine is theirs else 1.0, *newest)
    return (abs(mine - theirs), *newest)


def _number(stack: Stack) -> float | None:
    """12.1 as 1201: a step of a major version is further than any minor one."""
    if stack.cuda is None:
        return None
    major, minor, *_ = (*version_key(stack.cuda), 0)
    return major * 100.0 + minor


def _joined(problem: Problem, name: str | None) -> Problem:
    stack = f"stack {name}" if name else ""
    if not problem.nearest and not stack:
        return problem.with_nearest("none of the stacks known here works with this hardware and host")
    return problem.with_nearest(" or ".join(part for part in (stack, problem.nearest) if part))
