"""Every row of every table of this folder: what each check says of it; and no check without its rows."""

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nodectl.checks.catalogue import checks, modules, values
from nodectl.checks.check import Judgement
from nodectl.checks.gpu.rules import GpuJudgement
from nodectl.model.status import Status
from tests.checks.table import UNREAD, Case, dgx, found, missing, verify

# what the tests of these hold without a table
ELSEWHERE = {
    "clock",
    "hung",
    "kernel_settings",
    "limits",
    "nccl_file",
    "nccl_debug",
    "profiles",
    "reach",
    "health_timer",
}


def cases_in(value: object) -> Iterator[Case]:
    """Yield the rows of a table, or of a list of them."""
    if isinstance(value, Case):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from cases_in(part)


def tables() -> list[Case]:
    """Return the rows of all test modules of this folder, each once."""
    rows: dict[int, Case] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem != "test_cases":
            module = importlib.import_module(f"tests.checks.{path.stem}")
            rows |= {id(case): case for case in cases_in(list(vars(module).values()))}
    return [case for case in rows.values() if case.check in checks()]


HOMES = {
    check.id: (module, judgement)
    for module in modules()
    for judgement in values(module)
    if isinstance(judgement, Judgement)
    for check in judgement.checks
}


def unread(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield a row for each check that none has unknown: its fact could not be read, with a profile or without."""
    told = {case.check for case in cases if case.status == "unknown"}
    tabled = {HOMES[case.check][0] for case in cases}
    for check, (module, judgement) in HOMES.items():
        for wanted in (None, dgx()) if module in tabled and judgement.reads and check not in told else ():
            case = Case(check, "unknown", {judgement.reads[0]: UNREAD}, wanted)
            if any(each.check == check and each.status is Status.UNKNOWN for each in found(module, case)):
                yield case
                break


TABLES = tables()
CASES = [*TABLES, *unread(TABLES)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_case(case: Case) -> None:
    verify(HOMES[case.check][0], case)


def lacking(cases: Iterable[Case]) -> dict[str, str]:
    """Return what is missing of each check in the modules that have tables."""
    by_home: dict[object, list[Case]] = {}
    for case in cases:
        by_home.setdefault(HOMES[case.check][0], []).append(case)
    lines = (line for module, rows in by_home.items() for line in missing(module, rows))  # type: ignore[arg-type]
    split = (line.partition(": ") for line in lines)
    return {check: lack for check, _, lack in split if check in HOMES}


def test_no_case_is_missing() -> None:
    # test_gpu_checks refuses each value; a report that cannot be read is all that gpu_report is about
    rules = {rule.checks[0].id for home in modules() for rule in values(home) if isinstance(rule, GpuJudgement)}
    told = {"gpu_report": "fires"} | dict.fromkeys(rules, "could not tell")
    assert {
        check: lack for check, lack in lacking(CASES).items() if check not in ELSEWHERE and told.get(check) != lack
    } == {}
