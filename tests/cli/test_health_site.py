"""A site's own checks, from the folder beside the inventory to every form in which health is told."""

import json
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Cli

FANS = """\
#!/bin/sh
# nodectl: about=the fans turn
echo '[{"status": "failed", "subject": "zanzibar rack", "expected": "9000 rpm", "actual": "0 rpm", "action": "drain",'
echo ' "remedy": "call quetzal"}, {"status": "ok", "subject": "fan 2"}]'
exit 2
"""
DISK = "#!/bin/sh\necho 'nearly full | used=93%'\nexit 1\n"
TITLE = "#!/bin/sh\nprintf '\\033]0;owned\\007\\n'\nexit 2\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An inventory of this machine with three checks beside it."""
    (tmp_path / "checks.d").mkdir(mode=0o755)
    for name, text in (("fans.sh", FANS), ("disk use", DISK), ("title", TITLE)):
        (tmp_path / "checks.d" / name).write_text(text)
        (tmp_path / "checks.d" / name).chmod(0o755)
    _inventory(tmp_path)
    return tmp_path


def _inventory(folder: Path, **variables: object) -> None:
    here = {"ansible_connection": "local", "nodectl_stack": "cpu", **variables}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"gpu01": here}}}))


def _own(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, str]]:
    return {(f["check"], f["subject"]): f for f in document["findings"] if f["check"].startswith("site")}


def test_from_the_host_to_a_recording_and_every_form(nodectl: Cli, site: Path) -> None:
    at = ("-i", str(site / "hosts.json"))
    recording, masked = str(site / "r"), str(site / "m")
    nodectl(*at, "record", recording)

    live = _own(json.loads(nodectl(*at, "health", "--output", "json", check=False).stdout))
    fans = live["site_fans", "zanzibar rack"]
    assert (fans["host"], fans["status"], fans["action"], fans["evidence"]) == ("gpu01", "failed", "drain", "")
    assert (fans["expected"], fans["actual"], fans["remedy"]) == ("9000 rpm", "0 rpm", "call quetzal")
    assert live["site_disk_use", ""]["actual"] == "nearly full" and live["site_disk_use", ""]["evidence"] == "used=93%"

    # judged again from what was recorded, without the folder or any host
    for path in (site / "checks.d").iterdir():
        path.unlink()

    def replay(*form: str) -> str:
        return nodectl("--replay", recording, "health", *form, check=False).stdout

    assert _own(json.loads(replay("--output", "json"))) == live
    table = replay()
    assert "FAILED  gpu01  site_fans: zanzibar rack: 0 rpm; expected 9000 rpm" in table and "try: call quetzal" in table
    assert "\x1b" not in table and "site_title" in table
    assert "site_fans: zanzibar rack: 0 rpm" in replay("--one-line")
    cases = ET.fromstring(replay("--output", "junit")).iter("testcase")  # noqa: S314 - our own
    assert {case.get("name") for case in cases if case.find("failure") is not None} >= {"site_fans: zanzibar rack"}
    families = {each.name: each for each in text_string_to_metric_families(replay("--output", "prometheus"))}
    problems = {s.labels["check"]: s.labels["status"] for s in families["nodectl_health_problem"].samples}
    assert (problems["site_fans"], problems["site_disk_use"]) == ("failed", "warning")

    nodectl("--replay", recording, "record", masked, "--mask")
    done = json.loads(nodectl("--replay", masked, "health", "--output", "json", check=False).stdout)
    assert sorted(f["status"] for f in _own(done).values()) == sorted(f["status"] for f in live.values())


def test_a_folder_that_others_may_write_to_is_refused_before_any_host_is_asked(nodectl: Cli, site: Path) -> None:
    folder = site / "checks.d"
    folder.chmod(folder.stat().st_mode | stat.S_IWOTH)
    for command in (("health",), ("health", "--list"), ("record", str(site / "r"))):
        done = nodectl("-i", str(site / "hosts.json"), *command, check=False)
        assert done.returncode == 2 and "checks.d may be written by everybody" in done.stderr
    assert not (site / "r").exists()
