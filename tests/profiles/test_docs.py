"""docs/profiles.md says what the profiles say."""

from pathlib import Path

import pytest
import yaml

from nodectl.profiles.load import check_document, find_profiles
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Stack

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "profiles.md").read_text()


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
