"""The probe of docs/extending.md, as a new file beside nodectl's own: it appears wherever a probe does."""

import importlib
import json
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nodectl.probes
from nodectl.cli.root import cli
from nodectl.probes import registry
from nodectl.probes.budget import BudgetError

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
FILE = re.search(r"```python\n# nodectl/probes/spawn\.py\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """The command line on this machine, with the new file there."""
    assert FILE is not None
    folder = tmp_path / "added"
    folder.mkdir()
    (folder / "spawn.py").write_text(FILE[1])
    (tmp_path / "hosts").write_text("here ansible_connection=local\n")
    monkeypatch.setattr(nodectl.probes, "__path__", [*nodectl.probes.__path__, str(folder)])
    importlib.invalidate_caches()
    registry.declarations.cache_clear()
    env = {"XDG_STATE_HOME": str(tmp_path), "ANSIBLE_INVENTORY": str(tmp_path / "hosts")}
    yield lambda *args: CliRunner(env=env).invoke(cli, args)
    registry.declarations.cache_clear()
    sys.modules.pop("nodectl.probes.spawn", None)


def test_help_table_json_history_and_documentation_have_it(run: Callable[..., Result]) -> None:
    assert re.search(r"^  spawn +How many processes", run("probe", "--help").output, re.MULTILINE)
    own = run("probe", "spawn", "--help").output
    assert "--program PATH" in own and "--pairs" not in own and "Default: 3" in own

    measure = ("probe", "spawn", "--duration", "0.01", "--repetitions", "2")
    shown = run(*measure)
    assert re.search(r"^spawn +here +\d+ starts/s +[\d.]+ % +/bin/true$", shown.stdout, re.MULTILINE), shown.output
    document = json.loads(run("--output", "json", *measure, "--compare", "LAST").stdout)
    assert document["measurements"][0]["unit"] == "starts/s"
    (change,) = document["comparison"]["changes"]
    assert (change["subject"], change["unit"]) == ("program /bin/true", "starts/s")
    assert "starts/s" in run("history", "show", "1").output
    refused = run("probe", "spawn,memory", "--budget", "0.01").exception
    assert isinstance(refused, BudgetError) and "the spawn probe takes at least 0 s here" in refused.message

    docs = runpy.run_path(str(ROOT / "scripts" / "docs.py"))
    row = "| `spawn` | How many processes each host starts in a second | starts/s | 3 x 1 s | 3 s | `--program` | - |"
    assert row in docs["filled"]((ROOT / "docs" / "probes.md").read_text(), docs["probe_tables"](), "probes.md")
    assert row in PAGE
    assert "spawn" in [probe.name for probe in registry.group("all")]
