"""A name that is not there is refused with the one that may be meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

USAGE = 2
LAN = "all:\n  children:\n    trainers:\n      hosts:\n        node01: {ansible_host: 192.0.2.1}\n        node02: {}\n"


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    (tmp_path / "hosts.yml").write_text(LAN)
    return str(tmp_path / "hosts.yml")


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["heatlh"], "did you mean health?"),
        (["probe", "nccl", "--collectives", "allreduce"], "did you mean all_reduce?"),
        (["-l", "nod01", "probe", "memory"], "did you mean node01?"),
        (["--replay", "h100-9", "facts"], "did you mean h100-8?"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_slip_is_told_what_was_meant(nodectl: Callable[..., Any], inventory: str, args: list[str], hint: str) -> None:
    done = nodectl("-i", inventory, *args, check=False)
    assert done.returncode == USAGE
    assert hint in done.stderr
