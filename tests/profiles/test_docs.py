"""docs/profiles.md says what the profiles say."""

import re
from pathlib import Path

import pytest
import yaml

from nodectl.profiles.load import check_document, find_profiles
from nodectl.profiles.resolve import load_profile, load_stacks
from nodectl.profiles.schema import Hardware, Stack

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "profiles.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """Rows of the first table below a heading, by the name in their first cell."""
    section = re.split(r"^## ", DOCS.partition(f"## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = section.strip().split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0].strip("`"): line[1:] for line in cells}


def test_the_table_of_stacks_is_the_stacks() -> None:
    expected = {
        name: [
            stack.torch,
            stack.cuda or "-",
            stack.cudnn or "-",
            stack.nccl or "-",
            f"{stack.python.min}-{stack.python.max}",
            f"{stack.driver.branch}, from {stack.driver.min}" if stack.driver else "-",
            ", ".join(stack.os) or "any",
            ", ".join(stack.architectures),
        ]
        for name, stack in load_stacks().items()
    }
    assert rows("Stacks") == expected


def test_the_table_of_hardware_is_the_hardware() -> None:
    expected = {}
    for name in find_profiles("hardware"):
        found = load_profile("hardware", name)
        assert isinstance(found, Hardware)
        gpus = "?" if found.gpus is None else str(found.gpus)
        model = found.gpu.model if found.gpu else "-"
        expected[name] = [gpus, model, found.link or "-", str(len(found.floors))]
    assert rows("Hardware") == expected


def test_every_field_of_a_stack_is_explained() -> None:
    text = DOCS.partition("## Stacks\n")[2].partition("## Hardware\n")[0]
    unexplained = [name for name in Stack.model_fields if not re.search(rf"`{name}\b", text)]
    assert unexplained == ["description"]


def test_the_own_stack_of_the_docs_is_one() -> None:
    text = DOCS.partition("## An own stack\n")[2]
    check_document(Stack, yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0]), "docs")


@pytest.mark.parametrize("name", find_profiles("tuning"))
def test_every_tuning_says_why_and_where_from(name: str) -> None:
    tuning = load_profile("tuning", name)
    groups = [getattr(tuning, group) for group in ("sysctl", "nccl", "limits")]
    settings = [setting for group in groups for setting in group.values()]
    for group in (getattr(tuning, "nic"), getattr(tuning, "gpu")):  # noqa: B009  # one type for all kinds
        settings += [value for _, value in group if value is not None]
    assert all(setting.why and setting.source for setting in settings)
