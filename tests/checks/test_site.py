"""What the site's own checks answer, and what is made of answers that are none."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodectl.checks.catalogue import checks
from nodectl.checks.check import Subject
from nodectl.checks.judge import judge
from nodectl.checks.site import ASKED, read_answers
from nodectl.facts.catalogue import read_facts
from nodectl.facts.look import site_command
from nodectl.model.finding import Finding
from nodectl.model.recording import SITE, Entry, Recording

NAME = "site_x"
WHOLE = {
    "status": "failed",
    "subject": "sda",
    "expected": 1,
    "actual": 2.5,
    "remedy": "swap it",
    "action": "replace",
    "evidence": "smart",
}


def judged(stdout: str = "", stderr: str = "", status: int | None = 0, seconds: float = 0.1) -> list[Finding]:
    argv = site_command(NAME, b"", host="n1", limit_s=20).argv
    return of({NAME: Entry(NAME, argv, status, stdout, stderr, seconds, cut=status is None)})


def of(entries: Mapping[str, Entry], *asked: str) -> list[Finding]:
    facts = read_facts(Recording("n1", entries))
    found = judge(Subject("n1", facts, None, {ASKED: asked}))
    return [finding for finding in found if finding.check.startswith(SITE) or finding.check in ("hung", "site")]


def test_json_says_all_that_a_finding_has() -> None:
    (found,) = judged(json.dumps(WHOLE), status=2)
    assert found == Finding("n1", NAME, found.status, "sda", "replace", "1", "2.5", "swap it", "smart")
    assert found.status.value == "failed"
    several = judged(json.dumps([{"status": status} for status in ("ok", "skipped", "warning", "unknown")]))
    assert [each.status.value for each in several] == ["ok", "skipped", "warning", "unknown"]


@pytest.mark.parametrize(
    ("text", "status", "finding"),
    [
        ("DISK OK - free 3 GB | /=2643MB;5948;5958\nmore\n", 0, ("ok", "DISK OK - free 3 GB", "/=2643MB;5948;5958")),
        ("\n[WARN] nearly full\n", 1, ("warning", "[WARN] nearly full", "")),
        ("", 2, ("failed", "exit status 2, and no word", "")),
        ("cannot say\n", 3, ("unknown", "cannot say", "")),
    ],
)
def test_the_convention_of_nagios(text: str, status: int, finding: tuple[str, str, str]) -> None:
    (found,) = judged(text, status=status)
    assert (found.status.value, found.actual, found.evidence) == finding


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"status": "good"}, "answer 1: status: Input should be 'failed', 'unknown', 'warning', 'ok' or 'skipped'"),
        ({"actual": "x"}, "answer 1: status: Field required"),
        ([{"status": "ok"}, {"status": "ok", "actua": "x"}], "answer 2: actua: Extra inputs are not permitted"),
        ([{"status": "ok"}, 5], "answer 2: "),
        ({"status": "ok", "subject": 5}, "subject: Input should be a valid string"),
        ({"status": "ok", "actual": True}, "actual: Input should be a valid string"),
        ({"status": "failed", "action": "explode"}, "action: Input should be 'none', 'restart job'"),
        ([], "at least 1 item"),
        ([{"status": "ok"}] * 101, "at most 100 items"),
        ({"status": ["ok"] * 9999}, "answer 1: status: Input should be"),
    ],
)
def test_an_answer_that_is_none_is_unknown_and_says_where(document: object, said: str) -> None:
    (found,) = judged(json.dumps(document))
    assert found.status.value == "unknown" and said in found.actual and len(found.actual) < 400
    assert "docs/health.md" in found.remedy


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"status": 124, "seconds": 20.0}, "it did not end within 20 s"),
        ({"status": 137, "seconds": 22.0}, "it did not end within 20 s"),
        ({"status": 124}, "exit status 124, as of what did not end in time"),
        ({"status": 137}, "signal 9 (SIGKILL) ended it"),
        ({"status": 126, "stderr": "Permission denied"}, "it cannot be executed there: Permission denied"),
        ({"status": 127}, "its interpreter, or what it runs, is not there"),
        ({"status": 42, "stderr": "one\ntwo\n"}, "exit status 42: two"),
        ({"status": None}, "its output was cut"),
        (
            {"status": 93, "stderr": "nodectl-check: not here: No space left on device"},
            "sent to the host: No space left",
        ),
        ({"stderr": "nodectl-check: printed too much\n"}, "it printed more than 64 KiB"),
        ({"status": 124, "stderr": "nodectl: not asked: no time left\n"}, "not run: the host's other commands"),
    ],
)
def test_no_answer_is_unknown_under_its_own_id_and_told_once(given: dict[str, object], said: str) -> None:
    (found,) = judged('{"status": "ok"}', **given)  # type: ignore[arg-type]
    assert (found.check, found.status.value) == (NAME, "unknown") and said in found.actual


def test_no_check_of_ours_has_an_id_that_a_site_could_give() -> None:
    assert not [name for name in checks() if name.startswith(SITE)]


def test_the_example_of_the_documentation_answers(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "health.md").read_text()
    (text,) = re.findall(r"^```sh\n(#!.*?)^```$", page, re.MULTILINE | re.DOTALL)
    program = tmp_path / "scratch.sh"
    for folder, status in (("/", {"ok", "warning"}), ("/no-such", {"failed"})):
        program.write_text(text.replace("/srv", folder))
        done = subprocess.run(["sh", program], capture_output=True, text=True, check=True)
        (answer,) = read_answers(done.stdout, done.returncode)
        assert answer.status.value in status and answer.subject == folder
