"""`nodectl report`: of a recording, of saved results, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from nodectl.cli.report import latest_runs, trials, with_files
from nodectl.errors import UsageError
from nodectl.ledger.history.store import History
from nodectl.model.measurement import Measurement
from nodectl.recordings.folder import bundled
from nodectl.report.page.content import Content, Nature
from nodectl.trials import store
from tests.conftest import Cli
from tests.report_content import NOW, acceptance
from tests.trials.saved_trial import trial


def write(folder: Path, name: str, document: object) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def read(*paths: Path) -> Content:
    return with_files(Content("Fleet", "now", "1"), paths)


def test_a_recording_is_reported_as_one_and_so_are_its_saved_results(nodectl: Cli, tmp_path: Path) -> None:
    out = tmp_path / "live.html"
    told = json.loads(nodectl("--replay", "dgx-a100", "--output", "json", "report", "-o", str(out)).stdout)
    page = out.read_text(encoding="utf-8")
    assert told == {"schema": "nodectl.report/1", "file": str(out), "bytes": out.stat().st_size}
    assert (
        "Fleet report: dgx-a100" in page
        and "RECORDED DATA" in page
        and "8 x NVIDIA A100-SXM4-80GB, 10 RDMA NICs" in page
    )

    saved = tmp_path / "health.json"
    saved.write_text(nodectl("--replay", "dgx-a100", "--output", "json", "health", check=False).stdout)
    again = tmp_path / "saved.html"
    (tmp_path / "<b>.ini").write_text("node01\n")
    nodectl("-i", str(tmp_path / "<b>.ini"), "report", "--no-hosts", "--from", str(saved), "-o", str(again))
    page = again.read_text(encoding="utf-8")
    assert f"<title>Fleet report: {tmp_path.name}/&lt;b&gt;.ini</title>" in page
    assert "dgx-a100, saved in health.json" in page


def test_markdown_is_short_masked_and_names_the_faults(nodectl: Cli, tmp_path: Path) -> None:
    """Hosts of three kinds, whose names, user and serial numbers are in no line."""
    for name, recording in (("alice-gpu7.corp.example", "h100-8"), ("bob-rig", "rtx4090-3"), ("old-dgx", "dgx-a100")):
        shutil.copytree(bundled()[recording] / "node01", tmp_path / "fleet" / name)
    sick = tmp_path / "fleet" / "alice-gpu7.corp.example" / "nvidia-smi-q.out"
    sick.write_text(sick.read_text().replace("Pending                                        : No", "Pending : Yes", 1))
    done = nodectl("--replay", str(tmp_path / "fleet"), "report", "--format", "markdown")
    lines = done.stdout.splitlines()
    assert len(lines) < 60 and not {"alice", "bob-rig", "old-dgx", "S512345"} & {*re.findall(r"[\w-]+", done.stdout)}
    assert "3 x NVIDIA GeForce RTX 4090" in done.stdout and "ECC on, MIG off" in done.stdout
    faults = [line for line in lines if line.startswith("| failed | host01 | gpu_remap")]
    assert faults and "what to do" in done.stdout.lower()
    assert "read the text before you publish it" in done.stderr
    file = tmp_path / "post.md"
    nodectl("--replay", "h100-8", "report", "--format", "markdown", "-o", str(file))
    assert file.read_text().startswith("### host01\n")
    for other in (("--from", str(file)), ("--no-hosts",)):
        refused = nodectl("--replay", "h100-8", "report", "--format", "markdown", *other, check=False)
        assert refused.returncode == 2 and "leave out --from and --no-hosts" in refused.stderr


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"schema": "nodectl.probe/2", "measurements": []}, "no result that a report shows"),
        ({"schema": "nodectl.probe/1", "measurements": [{"probe": 7}], "findings": []}, "malformed nodectl.probe/1"),
        ({"schema": "nodectl.accept/1", "id": "x"}, "malformed nodectl.accept/1"),
        ({"schema": "nodectl.accept/1", **asdict(acceptance(["a"])), "ended": float("nan")}, "finite number"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_its_name(tmp_path: Path, document: object, words: str) -> None:
    path = write(tmp_path, "other", document)
    with pytest.raises(UsageError, match=r"other\.json") as refused:
        read(path)
    assert words in refused.value.message and "health" in refused.value.remedy


def test_a_saved_trial_is_read(tmp_path: Path) -> None:
    document = {"schema": store.SCHEMA, **store.document_of(trial())}
    (tuned,) = read(write(tmp_path, "trial", document)).tuned
    assert (tuned.baseline, tuned.complete) == ("own", True)
    assert [verdict.profile for verdict in tuned.verdicts] == ["article-20g"]


def test_a_history_gives_the_latest_run_of_each_probe(tmp_path: Path) -> None:
    with History(tmp_path / "history.sqlite", "fleet") as history:
        for day in (18, 19):
            slow = 1.0 if day < 10 else 0.8
            flows = [
                Measurement("tcp", (a, b), 90.0 * (slow if b == "n2" else 1.0) + 0.1 * (day % 3), "Gbit/s", f"{a}->{b}")
                for a, b in (("n1", "n2"), ("n1", "n3"))
            ]
            history.add(flows, NOW + 86400 * day)
        history.add([Measurement("memory", ("n1",), 20.0, "GB/s")], NOW + 86400 * 20)
        measured = latest_runs(history, Nature.LAB)
    assert [(len(one.measurements), one.origin.source.split(" of ")[0]) for one in measured] == [
        (1, "history, run 3"),
        (2, "history, run 2"),
    ]


def test_the_latest_trial_of_each_profile_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = trial()
    store.folder()
    store.save(kept)
    (tuned,) = trials(kept.inventory, Nature.LAB)
    assert (tuned.baseline, tuned.origin.source) == (kept.baseline, f"trial {kept.id}") and tuned.verdicts
    assert trials(("another.yml",), Nature.LAB) == ()
