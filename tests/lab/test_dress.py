"""Lab hosts dressed in a recording: hardware from there, all else live, each a machine of its own."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.errors import LabError
from nodectl.lab.dress import RECORDED, hardware_commands, wardrobe_for
from nodectl.recordings.folder import open_recording
from tests.conftest import Cli, LabUnderTest


def recording(path: Path, *hosts: str, **more: str) -> Path:
    for host in hosts:
        (path / host).mkdir(parents=True)
        (path / host / "nvidia-smi-q.out").write_text("Serial Number : 1565020014800\nProduct Name : NVIDIA A100\n")
        (path / host / "ip-address.out").write_text("[]")
        for key, text in more.items():
            (path / host / key).write_text(text)
    return path


class TestWardrobe:
    def test_only_hardware_is_taken_from_the_recording(self, tmp_path: Path) -> None:
        wardrobe = wardrobe_for(open_recording(str(recording(tmp_path, "a"))), ["node01"])
        files = wardrobe.outfits["node01"].files()
        limits, _ = files.pop("etc/security/limits.d/90-nodectl.conf")
        names = {name.removeprefix(f"{RECORDED}/") for name in files}
        assert names == {"nvidia-smi-q.out", "nvidia-smi-q.status", "argv", "name", "usr/local/bin/nvidia-smi"}
        assert b"root - memlock unlimited\n" in limits

    def test_who_is_not_the_first_has_an_identity_of_its_own(self, tmp_path: Path) -> None:
        wardrobe = wardrobe_for(open_recording(str(recording(tmp_path, "a", "b"))), ["node01", "node02", "node03"])
        texts = [outfit.files()[f"{RECORDED}/nvidia-smi-q.out"][0] for outfit in wardrobe.outfits.values()]
        assert [b"1565020014800" in text for text in texts] == [True, True, False]
        assert all(b"Product Name : NVIDIA A100" in text for text in texts)

    def test_profiles_follow_the_recording(self, tmp_path: Path) -> None:
        recording(tmp_path, "a", "b")
        (tmp_path / "recording.yml").write_text(
            "schema: nodectl.recording/1\nhardware: dgx-a100\nhosts: {b: {stack: cu121}}"
        )
        profiles = wardrobe_for(open_recording(str(tmp_path)), ["node01", "node02"]).profiles
        assert profiles["node01"] == {"hardware": "dgx-a100", "stack": "cpu", "tuning": "stock"}
        assert profiles["node02"]["stack"] == "cu121"

    def test_a_recording_without_hardware_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "ip-address.out").write_text("[]")
        with pytest.raises(LabError, match="no output of any hardware's tool"):
            wardrobe_for(open_recording(str(tmp_path)), ["node01"])

    def test_what_is_live_is_never_hardware(self) -> None:
        keys = {each.key for each in hardware_commands()}
        assert {"nvidia-smi-q", "dmesg", "ibstat", "lspci-acs"} <= keys
        assert not keys & {"ip-address", "sysctl", "df", "session-limits", "lab", "listening"}


@pytest.fixture(scope="module")
def dressed(nodectl: Cli, lab_machine: None) -> Iterator[LabUnderTest]:
    with nodectl.lab(f"dressed-{os.getpid()}", 2, "--as", "dgx-a100") as lab:
        yield lab


@pytest.mark.lab
class TestDressedLab:
    def test_the_status_and_the_hosts_say_so(self, dressed: LabUnderTest) -> None:
        assert dressed.status["recorded"] == "dgx-a100"
        assert json.loads(dressed.ssh("node02", "cat /etc/nodectl-lab"))["recorded"] == "dgx-a100"

    def test_the_tools_answer_from_it_and_say_what_they_do_not_know(self, dressed: LabUnderTest) -> None:
        said = dressed.ssh("node02", "nvidia-smi topo -m; echo status=$?; nvidia-smi --reset; echo status=$?")
        assert "GPU0" in said
        assert "status=0" in said
        assert "dressed in the recording 'dgx-a100'" in said
        assert "status=9" in said

    def test_facts_come_from_it_and_the_network_is_live(self, nodectl: Cli, dressed: LabUnderTest) -> None:
        done = nodectl("-i", dressed.inventory, "facts", "--output", "json", check=False)
        hosts = json.loads(done.stdout)["hosts"]
        serials = [gpu["serial"] for facts in hosts.values() for gpu in facts["gpus"]["devices"]]
        assert len(set(serials)) == 16
        assert set(hosts["node01"]["nics"]) == {"eth0"}
        assert "recorded: dgx-a100" in done.stderr

    def test_what_changes_on_the_host_shows(self, nodectl: Cli, dressed: LabUnderTest) -> None:
        folder, host = f"/{RECORDED}", dressed.hosts[0]
        dressed.ssh(host, f"cd {folder}; mv nvidia-smi-q.out kept; echo 'No devices were found' >nvidia-smi-q.out")
        try:
            assert dressed.ssh(host, "nvidia-smi -q") == "No devices were found"
        finally:
            dressed.ssh(host, f"cd {folder}; mv kept nvidia-smi-q.out")

    def test_it_can_be_recorded_masked_and_replayed(self, nodectl: Cli, dressed: LabUnderTest, tmp_path: Path) -> None:
        plain, mask = tmp_path / "plain", tmp_path / "mask"
        nodectl("-i", dressed.inventory, "record", str(plain))
        nodectl("--replay", str(plain), "record", "--mask", str(mask))
        serial = json.loads(nodectl("--replay", str(plain), "facts", "--output", "json").stdout)
        numbers = [gpu["serial"] for gpu in serial["hosts"]["node01"]["gpus"]["devices"]]
        assert sorted(path.name for path in mask.iterdir()) == ["host01", "host02", "recording.yml"]
        whole = "".join(path.read_text() for path in mask.rglob("*") if path.is_file())
        assert not [each for each in numbers if each in whole]
        assert "node01" not in whole
        again = json.loads(nodectl("--replay", str(mask), "-l", "host02", "facts", "--output", "json").stdout)
        assert again["hosts"]["host02"]["gpus"]["count"] == 8
