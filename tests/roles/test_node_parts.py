"""What the record's helpers read: dpkg's and apt's files, the driver's packages, rings, GPU settings, sysctl names."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir
from tests.node_snapshot import fenced

DOCUMENT = share_dir() / "docs" / "rollback.md"

STATUS = """Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.21

Package: cuda-toolkit-11-8
Status: hold ok installed
Architecture: amd64
Version: 11.8.0-1
Depends: libtool-a | libtool-b (>= 2),
 continued

Package: libtool-b
Status: install ok installed
Architecture: all
Version: 2

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.36

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
MARKS = """Package: libtool-b
Architecture: amd64
Auto-Installed: 1

Package: dpkg
Architecture: amd64
Auto-Installed: 0
"""


def test_dpkgs_and_apts_files_are_read_as_they_are(utils: Any) -> None:
    packages = utils("apt").parse(STATUS, MARKS)
    assert set(packages) == {"dpkg", "cuda-toolkit-11-8", "libtool-b", "libc6:i386", "gone"}
    held = {"version": "11.8.0-1", "selection": "hold", "state": "installed", "auto": False}
    assert packages["cuda-toolkit-11-8"] == held
    assert packages["libtool-b"]["auto"] and not packages["dpkg"]["auto"]
    assert not utils("apt").there(packages["gone"])


def test_the_document_names_the_driver_family_as_the_code_has_it(utils: Any) -> None:
    node_packages = utils("apt")
    family = [*node_packages.DRIVER_FAMILY, *node_packages.DRIVER_MODULES]
    assert fenced(DOCUMENT.read_text(), "driver-packages") == family


@pytest.mark.parametrize(
    ("name", "version", "is_driver"),
    [
        ("nvidia-driver-535", "535.183.01-0ubuntu1", True),
        ("libnvidia-compute-535:i386", "535.183.01-0ubuntu1", True),
        ("nvidia-fabricmanager-535", "535.183.01-1", True),
        ("nvidia-driver", "590.48.01-1", True),
        ("nvidia-utils", "590.48.01-0ubuntu1", True),
        ("nvidia-dkms", "590.48.01-0ubuntu1", True),
        ("libcuda1", "580.159.04-1", True),
        ("nvidia-smi", "580.159.04-1", True),
        ("firmware-nvidia-gsp", "580.159.04-1", True),
        ("nvidia-driver-cuda", "580.159.04-1", True),
        ("libegl-nvidia0", "580.159.04-1", True),
        ("linux-modules-nvidia-580-open-generic", "6.8.0-45.45+1", True),
        ("cuda-toolkit-11-8", "11.8.0-1", False),
        ("cuda-compat-12-8", "570.124.06-0ubuntu1", False),
        ("libcudnn8", "8.6.0.163-1+cuda11.8", False),
        ("libnvidia-container1", "1.17.8-1", False),
        ("nvidia-container-toolkit", "1.17.8-1", False),
        ("nvidia-gds-12-8", "12.8.1-1", False),
        ("nvidia-support", "20220217+3~deb12u1", False),
        ("nvidia-prime", "0.8.17.1", False),
        ("nvlsm", "2025.10.12-1", False),
    ],
)
def test_a_driver_is_known_by_name_and_version(utils: Any, name: str, version: str, is_driver: bool) -> None:
    """By both: names of Ubuntu's form and Debian's, with a branch and without."""
    parts = utils("apt")
    assert parts.is_driver(name, version) == is_driver
    role = yaml.safe_load((share_dir() / "roles" / "nvidia_repository" / "vars" / "main.yml").read_text())
    other = role["_nvidia_repository_no_driver"].strip("/")
    of_driver = re.search(utils("wanted_packages").DRIVER_VERSION, version)
    assert bool(of_driver) != bool(re.search(other, version)), "apt's pins cannot say not"


def test_ring_sizes_and_gpu_settings_go_back_by_the_programs_words(
    utils: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    live = utils("undo.live")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    text = (
        "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t8192\nRX Mini:\tn/a\nTX:\t\t8192\n"
        "Current hardware settings:\nRX:\t\t1024\nRX Mini:\tn/a\nTX:\t\t512\n"
    )
    item = {"kind": "rings", "interface": "eth0"}
    before = live.look_live(lambda argv: (0, text, ""), item)
    assert before == {"rx": "1024", "tx": "512"}
    assert live.live_commands(item, before, {"rx": "8192", "tx": "512"}) == [["ethtool", "-G", "eth0", "rx", "1024"]]

    def gpus(row: str) -> Any:
        rows = f"{row}, Enabled, Enabled, Disabled, Disabled\nGPU-2, 1{', [N/A]' * 13}\n"
        return live.look_live(lambda argv: (0, rows, ""), {"kind": "gpu"})

    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    old = gpus("GPU-1, 0, Disabled, Disabled, 350.00, 100.00, 400.00, 1980, 210, 877, Default")
    assert (old["GPU-1 power_limit_w"], old["GPU-2 mig"], old["GPU-1 clocks"]) == ("350.00", "[N/A]", "")
    (tmp_path / "nodectl-gpu-clocks.json").write_text('{"GPU-1": {"clocks": "1530"}}')
    new = gpus("GPU-1, 0, Enabled, Disabled, 300.00, 100.00, 400.00, 1980, 1530, 877, Prohibited")
    wanted = [["-pm", "0"], ["-c", "DEFAULT"], ["-pl", "350.00"], ["-rgc"]]
    lost = gpus("[GPU is lost], 0, Enabled, Disabled, 300.00, 100.00, 400.00, 1980, 1530, 877, Prohibited")
    assert lost == {"": "nvidia-smi cannot read GPU 0: uuid is [GPU is lost]"}
    assert live.live_commands({"kind": "gpu"}, old, lost) == []
    assert live.live_commands({"kind": "gpu"}, old, new) == [["nvidia-smi", "-i", "GPU-1", *words] for words in wanted]


def test_names_of_sysctls_are_those_of_sysctl(utils: Any) -> None:
    path = utils("undo.live").sysctl_path
    assert path("net.ipv4.tcp_rmem") == "/proc/sys/net/ipv4/tcp_rmem"
    for key in ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"):
        assert path(key) == "/proc/sys/net/ipv4/conf/eth0.1/forwarding"


def test_a_hold_of_a_drivers_part_goes_back_and_its_version_only_by_name(utils: Any) -> None:
    restore = utils("undo.restore")
    free = {"version": "580.159.04-1", "selection": "install", "state": "installed", "auto": False}
    assert not restore.moved(free, {**free, "selection": "hold"})
    assert restore.moved(free, {**free, "version": "590.48.01-1"}) and restore.moved(None, free)
    assert restore.of_driver("libcuda1", free) and not restore.of_driver("libcuda1", None)
