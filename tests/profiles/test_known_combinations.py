"""`profile validate` over what is known to work and what is known not to, each with who says so."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from nodectl.cli.root import cli

_CAPABILITIES = {
    "K80": "3.7",
    "M60": "5.2",
    "P100": "6.0",
    "P40": "6.1",
    "V100": "7.0",
    "T4": "7.5",
    "A100": "8.0",
    "A10G": "8.6",
    "L40S": "8.9",
    "RTX 4090": "8.9",
    "H20": "9.0",
    "H100": "9.0",
    "H200": "9.0",
    "GH200": "9.0",
    "B200": "10.0",
    "GB200": "10.0",
    "B300": "10.3",
    "RTX 5090": "12.0",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A row of known_combinations.tsv: a GPU, a build of torch, Python, a driver; `code` of what must refuse it."""

    gpu: str
    torch: str
    build: str
    python: str
    source: str
    machine: str = "x86_64"
    driver: str = "580 open"
    index: str = ""
    numpy: str = ""
    os: str = ""
    min_driver: str = ""
    code: str = ""

    def __str__(self) -> str:
        more = [each for each in (self.numpy, self.os, self.machine) if each and each != "x86_64"]
        return "-".join((self.gpu, self.torch, self.build, self.driver, self.python, *more))

    @property
    def hardware(self) -> dict[str, Any]:
        """The document of a hardware profile with eight of these GPUs."""
        if self.gpu == "none":
            return {"description": "no GPU", "gpus": 0}
        gpu = {"model": self.gpu, "compute_capability": _CAPABILITIES[self.gpu], "memory_gb": 16}
        return {"description": self.gpu, "architecture": self.machine, "gpus": 8, "gpu": gpu}

    @property
    def stack(self) -> dict[str, Any]:
        """The document of a stack profile with this build."""
        low, _, high = self.python.partition("-")
        cuda = re.fullmatch(r"cu(\d\d)(\d)", self.build)
        branch, _, flavour = self.driver.partition(" ")
        least = self.min_driver or ("580" if self.build >= "cu13" else "525.60.13")
        driver = {"branch": branch, "min": least, "flavour": flavour}
        return {
            "description": str(self),
            "architectures": [self.machine],
            "python": {"min": low, "max": high},
            "torch": self.torch,
            "index": self.index or self.build,
            **({"cuda": ".".join(cuda.groups()), "driver": driver} if cuda else {}),
            **({"packages": {"numpy": self.numpy}} if self.numpy else {}),
            **({"os": [self.os]} if self.os else {}),
        }


def _rows() -> list[Known]:
    _, *lines = (Path(__file__).parent / "known_combinations.tsv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [Known(**{name: value for name, value in row.items() if value}) for row in rows]


SANE = [row for row in _rows() if not row.code]
IMPOSSIBLE = [row for row in _rows() if row.code]


@cache
def _validated(folder: Path, row: Known) -> tuple[int, str]:
    """(exit status, all output) of `nodectl profile validate` with the row as a fleet's own profiles."""
    for kind, document in (("hardware", row.hardware), ("stack", row.stack)):
        place = folder / "profiles" / kind
        place.mkdir(parents=True, exist_ok=True)
        (place / "known.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    inventory = folder / "hosts.yml"
    inventory.write_text("all: {hosts: {}}\n", encoding="utf-8")
    names = ("--hardware", "known", "--stack", "known")
    done = CliRunner().invoke(cli, ["--output", "json", "-i", str(inventory), "profile", "validate", *names])
    return done.exit_code, done.output


def test_the_table_is_large_and_each_row_says_who_says_so() -> None:
    assert (len(SANE), len(IMPOSSIBLE)) == (73, 71)
    assert all(row.source for row in (*SANE, *IMPOSSIBLE))
    assert len({*SANE, *IMPOSSIBLE}) == 144


@pytest.mark.parametrize("row", SANE, ids=str)
def test_what_is_known_to_work_is_accepted(row: Known, tmp_path: Path) -> None:
    status, output = _validated(tmp_path, row)
    assert status == 0, output


@pytest.mark.parametrize("row", IMPOSSIBLE, ids=str)
def test_what_cannot_be_is_refused_for_its_reason(row: Known, tmp_path: Path) -> None:
    status, output = _validated(tmp_path, row)
    assert status == 1
    assert f'"{row.code}"' in output
