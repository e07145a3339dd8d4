"""The reference has everything that is declared."""

from __future__ import annotations

import re
from functools import cache

from nodectl.checks.catalogue import checks, launch_checks, thresholds
from nodectl.cli.options import global_options
from nodectl.cli.root import cli, commands
from nodectl.facts.catalogue import registered
from nodectl.facts.parsers.catalogue import tools
from nodectl.ledger.accept.steps import STEPS
from nodectl.probes.registry import listed
from nodectl.report.metrics import every_metric
from scripts.site import reference

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


def test_every_check_stands_with_its_threshold() -> None:
    groups = [text for place, text in pages().items() if re.fullmatch("reference/checks/(?!index).*", place)]
    assert set().union(*map(headings, groups)) == {*checks(), *launch_checks()}
    everything = "\n".join([pages()["reference/checks/index.md"], *groups])
    assert [name for name in thresholds() if not re.search(rf"`{name}`(,| \|) [0-9]", everything)] == []


def test_every_fact_probe_step_tool_and_metric_stands() -> None:
    assert [
        fact.subject for fact in registered() if f"| `{fact.subject}` | " not in pages()["reference/facts.md"]
    ] == []
    named = set(tools())
    assert [tool for tool in named if f"| `{tool}` | " not in pages()["reference/tools.md"]] == []
    assert [probe.name for probe in listed() if f"| `{probe.name}` | " not in pages()["reference/probes.md"]] == []
    assert [step.name for step in STEPS if f"| `{step.name}` | " not in pages()["reference/accept-steps.md"]] == []
    assert [name for name in every_metric() if f"| `{name}` | " not in pages()["reference/metrics.md"]] == []
