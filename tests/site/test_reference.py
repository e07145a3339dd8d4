"""The reference has everything that is declared."""

from __future__ import annotations

import re
from functools import cache

from nodectl.checks.catalogue import checks, launch_checks, thresholds
from nodectl.checks.gpu.xid import catalogue
from nodectl.cli.options import global_options
from nodectl.cli.root import cli, commands
from nodectl.common.resources import share_dir
from nodectl.facts.catalogue import registered
from nodectl.facts.parsers.catalogue import families
from nodectl.ledger.accept.steps import STEPS
from nodectl.probes.registry import listed
from nodectl.profiles import KINDS
from nodectl.profiles.load import find_profiles
from nodectl.report.metrics import every_metric
from scripts.site import reference
from scripts.site.reference import command_line

pages = cache(reference.pages)


def headings(text: str) -> set[str]:
    """Those of the second level, without markup."""
    return {line[3:].replace("`", "") for line in text.splitlines() if line.startswith("## ")}


def test_every_command_has_a_page_with_its_options() -> None:
    assert {place.split("/")[2] for place in pages() if place.startswith("reference/cli/")} == {
        "index.md",
        *(f"{name}.md" for name in commands()),
    }
    page = pages()["reference/cli/probe.md"]
    assert {"nodectl probe tcp", "nodectl probe nccl"} <= headings(page)
    assert "`--streams INTEGER RANGE`" in page and "Flows at the same time" in page
    assert "--inventory" not in page  # all commands take it
    assert all(f"`{option}" in pages()["reference/cli/index.md"] for option in ("-i, --inventory", "--replay", "-K"))
    assert global_options is not None and cli.params


def test_what_a_help_keeps_as_it_stands_is_a_block() -> None:
    assert (
        command_line.prose("One\nline.\n\n\b\n  a  b\n  c\n\nmore_")
        == "One line.\n\n```text\n  a  b\n  c\n```\n\nmore\\_"
    )


def test_every_check_stands_with_its_threshold() -> None:
    groups = [text for place, text in pages().items() if re.fullmatch("reference/checks/(?!index).*", place)]
    assert set().union(*map(headings, groups)) == {*checks(), *launch_checks()}
    everything = "\n".join([pages()["reference/checks/index.md"], *groups])
    assert [name for name in thresholds() if not re.search(rf"`{name}`(,| \|) [0-9]", everything)] == []


def test_every_fact_probe_step_tool_and_metric_stands() -> None:
    assert [
        fact.subject for fact in registered() if f"| `{fact.subject}` | " not in pages()["reference/facts.md"]
    ] == []
    named = {tool for family in families().values() for tool in family}
    assert [tool for tool in named if f"| `{tool}` | " not in pages()["reference/tools.md"]] == []
    assert [probe.name for probe in listed() if f"| `{probe.name}` | " not in pages()["reference/probes.md"]] == []
    assert [step.name for step in STEPS if f"| `{step.name}` | " not in pages()["reference/accept-steps.md"]] == []
    assert [name for name in every_metric() if f"| `{name}` | " not in pages()["reference/metrics.md"]] == []


def test_every_xid_stands_with_what_to_do() -> None:
    rows = [row.split(" | ") for row in pages()["reference/xids.md"].splitlines() if row.startswith("| ")]
    by_number = {row[0].strip("| "): row for row in rows}
    assert {str(number) for number in catalogue()} < set(by_number)
    assert by_number["79"][2:4] == [catalogue()[79].status, catalogue()[79].action]


def test_every_profile_and_role_stands() -> None:
    for kind in KINDS:
        assert set(find_profiles(kind)) <= headings(pages()[f"reference/profiles/{kind}.md"])
    tuning = pages()["reference/profiles/tuning.md"]
    assert "a bare Tree makes every other collective fail" in tuning and "## On every host" in tuning
    roles = {path.parent.parent.name for path in (share_dir() / "roles").glob("*/meta/argument_specs.yml")}
    assert {place.rpartition("/")[2] for place in pages() if place.startswith("reference/roles/")} == {
        "index.md",
        *(f"{role}.md" for role in roles),
    }


def test_statuses_are_those_of_the_errors() -> None:
    page = pages()["reference/exit-statuses.md"]
    assert "| 3 | `UnreachableError` |" in page and "| 2 | `UsageError` |" in page
    assert "130 interrupted" in page
