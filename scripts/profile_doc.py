"""The tables of docs/profiles.md from the profiles: `python scripts/profile_doc.py`, `--check` to compare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from nodectl.profiles.compat import profile_problems
from nodectl.profiles.load import find_profiles
from nodectl.profiles.matrix import matrix
from nodectl.profiles.resolve import load_profile, load_stacks
from nodectl.profiles.schema import Hardware, Stack, Tuning

DOC = Path(__file__).resolve().parent.parent / "docs" / "profiles.md"


def tables() -> dict[str, list[list[str]]]:
    """Rows of cells by the name of the table, the first the heading."""
    stacks, hardware = load_stacks(), dict(_hardware())
    return {
        "stacks": [
            ["stack", "torch", "CUDA", "cuDNN", "NCCL", "Python", "driver", "systems", "architectures"],
            *(_stack_row(name, stack) for name, stack in stacks.items()),
        ],
        "hardware": [
            ["profile", "GPUs", "model", "link", "floors"],
            *(_hardware_row(name, found) for name, found in hardware.items()),
        ],
        "tunings": [
            ["profile", "what it is for"],
            *([f"`{name}`", load_profile("tuning", name).description] for name in find_profiles("tuning")),
        ],
        "compatibility": [
            ["", *(f"`{name}`" for name in stacks)],
            *(
                [f"`{name}`", *(_verdict(found, stack) for stack in stacks.values())]
                for name, found in hardware.items()
            ),
        ],
    }


def _hardware() -> Iterator[tuple[str, Hardware]]:
    for name in find_profiles("hardware"):
        found = load_profile("hardware", name)
        if isinstance(found, Hardware):
            yield name, found


def _stack_row(name: str, stack: Stack) -> list[str]:
    return [
        f"`{name}`",
        stack.torch,
        stack.cuda or "-",
        stack.cudnn or "-",
        stack.nccl or "-",
        f"{stack.python.min}-{stack.python.max}",
        f"{stack.driver.branch}, from {stack.driver.min}" if stack.driver else "-",
        ", ".join(stack.os) or "any",
        ", ".join(stack.architectures),
    ]


def _hardware_row(name: str, hardware: Hardware) -> list[str]:
    gpus = "?" if hardware.gpus is None else str(hardware.gpus)
    model = hardware.gpu.model if hardware.gpu else "-"
    return [f"`{name}`", gpus, model, hardware.link or "-", str(len(hardware.floors))]


def _verdict(hardware: Hardware, stack: Stack) -> str:
    """`yes`, `yes, warns`, or the codes of the refusals."""
    stock = load_profile("tuning", "stock")
    assert isinstance(stock, Tuning)  # noqa: S101  # what the kind means
    problems = list(profile_problems(hardware, stack, stock, matrix()))
    refusals = dict.fromkeys(problem.code for problem in problems if problem.refuses)
    return ", ".join(refusals) or ("yes, warns" if problems else "yes")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def filled(text: str) -> str:
    """The text with its tables as the profiles have them."""
    for name, (heading, *rows) in tables().items():
        lines = [_line(heading), "|" + "---|" * len(heading), *map(_line, rows)]
        table = "\n".join(lines)
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        if not found or end not in rest:
            sys.exit(f"{DOC}: no lines {begin.strip()} and {end}")
        text = f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}"
    return text


def main() -> None:
    """Write the tables, or end with 1 where they are not the profiles'."""
    text = DOC.read_text(encoding="utf-8")
    wanted = filled(text)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if text == wanted else f"{DOC}: not what the profiles say; run python scripts/profile_doc.py")
    DOC.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
