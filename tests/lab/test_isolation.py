"""A lab host is a machine of its own: what it does is not seen outside, and it does not see the operator's life."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import LabUnderTest

pytestmark = pytest.mark.lab


def test_a_host_resolves_its_own_name_to_its_lab_address(lab4: LabUnderTest) -> None:
    name = lab4.hosts[1]
    code = "import socket; print(socket.gethostname(), socket.gethostbyname(socket.gethostname()))"
    assert lab4.ssh(name, f"python3 -c '{code}'") == f"{name} {lab4.status['hosts'][1]['address']}"


@pytest.mark.parametrize("key", ["vm.swappiness", "fs.file-max", "kernel.threads-max", "kernel.printk"])
def test_global_kernel_settings_are_out_of_reach(lab4: LabUnderTest, key: str) -> None:
    path = Path("/proc/sys", key.replace(".", "/"))
    before = path.read_text()
    assert "permission denied" in lab4.ssh(lab4.hosts[0], f"sysctl -w {key}=1").lower()
    assert path.read_text() == before


def test_settings_of_its_own_network_are_its_own(lab4: LabUnderTest) -> None:
    outside = Path("/proc/sys/net/ipv4/tcp_rmem").read_text()
    lab4.ssh(lab4.hosts[0], "sysctl -qw net.ipv4.tcp_rmem='4096 87380 99999'")
    assert lab4.ssh(lab4.hosts[0], "sysctl -n net.ipv4.tcp_rmem").split()[-1] == "99999"
    assert lab4.ssh(lab4.hosts[1], "sysctl -n net.ipv4.tcp_rmem").split()[-1] != "99999"
    assert Path("/proc/sys/net/ipv4/tcp_rmem").read_text() == outside
    lab4.ssh(lab4.hosts[0], f"sysctl -qw net.ipv4.tcp_rmem='{' '.join(outside.split())}'")


def test_files_of_a_host_are_seen_nowhere_else(lab4: LabUnderTest) -> None:
    marker = f"nodectl-test-{os.getpid()}"
    places = [f"{folder}/{marker}" for folder in ("/etc", "/usr/bin", "/var/lib", "/opt", "/root", "/tmp")]
    assert lab4.ssh(lab4.hosts[0], f"touch {' '.join(places)}") == ""
    assert not [place for place in places if Path(place).exists()]
    assert "No such file" in lab4.ssh(lab4.hosts[1], f"ls {places[0]}")
    lab4.ssh(lab4.hosts[0], f"rm {' '.join(places)}")


def test_the_operators_folders_are_hidden(lab4: LabUnderTest) -> None:
    checkout = Path(__file__).resolve().parents[2]
    shown = lab4.ssh(lab4.hosts[0], f"ls {checkout} {lab4.inventory}")
    assert shown.count("No such file") == 2 or "pyproject.toml" not in shown
    folders = ("/home", "/media", "/mnt", "/opt", "/root")
    # what other tests left there is this host's own
    entries = lab4.ssh(lab4.hosts[0], f"find {' '.join(folders)} -mindepth 1 -maxdepth 1 -not -name '.*'").split()
    assert not [path for path in entries if path != "/opt/nodectl" and Path(path).exists()]
    devices = lab4.ssh(lab4.hosts[0], f"stat -c %d {' '.join(folders)}").split()
    assert not {int(device) for device in devices} & {Path(folder).stat().st_dev for folder in folders}


def test_a_host_has_its_own_process_tree_and_sshd_is_its_first_process(lab4: LabUnderTest) -> None:
    pid = lab4.status["hosts"][0]["pid"]
    assert lab4.ssh(lab4.hosts[0], "cat /proc/1/comm") == "sshd"
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "sshd"
    # what other tests started there may still run
    duration_s = f"{600 + os.getpid() / 1e9:.9f}"
    with subprocess.Popen(["sleep", duration_s]) as outside:
        arguments = lab4.ssh(lab4.hosts[0], "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'").splitlines()
        outside.kill()
    assert "cat" in arguments and duration_s not in arguments


def test_orphans_are_reaped(lab4: LabUnderTest) -> None:
    lab4.ssh(lab4.hosts[0], "for i in 1 2 3; do (setsid sleep 0.1 &) ; done; sleep 0.4")
    # a connection of another test may end just now
    none = "! grep -q '^[0-9]* (.*) Z' /proc/[0-9]*/stat 2>/dev/null"
    assert lab4.ssh(lab4.hosts[0], f"for i in $(seq 50); do {none} && echo none && break; sleep 0.1; done") == "none"


def test_kernel_log_clock_and_modules_are_out_of_reach(lab4: LabUnderTest) -> None:
    said = lab4.ssh(lab4.hosts[0], "dmesg; ls /dev/kmsg; cat /proc/kmsg; date -s 2001-01-01; mknod /tmp/d b 7 0")
    assert said.lower().count("not permitted") == 3
    assert "/dev/kmsg" in said and "No such file" in said


def test_a_host_can_make_and_kill_a_control_group(lab4: LabUnderTest) -> None:
    if lab4.ssh(lab4.hosts[0], "test -e /sys/fs/cgroup/cgroup.procs || echo none") == "none":
        pytest.skip("this machine has no writable cgroup2 mount")
    # a busy machine takes its time to start a process, and to end one
    script = (
        "cd /sys/fs/cgroup && mkdir t && sh -c 'echo $$ > t/cgroup.procs; exec setsid sleep 60 >/dev/null 2>&1 &' ;"
        "until_count() { for i in $(seq 100); do [ $(wc -l < t/cgroup.procs) = $1 ] && break; sleep 0.1; done; };"
        "until_count 1; wc -l < t/cgroup.procs; echo 1 > t/cgroup.kill; until_count 0; wc -l < t/cgroup.procs; rmdir t"
    )
    assert lab4.ssh(lab4.hosts[0], script).split()[:2] == ["1", "0"]


def test_paths_and_python_are_the_distributions(lab4: LabUnderTest) -> None:
    shown = lab4.ssh(lab4.hosts[0], "command -v python3 sysctl; env | cut -d= -f1 | sort | tr '\\n' ' '")
    assert shown.split()[:2] == ["/usr/bin/python3", "/usr/sbin/sysctl"]
    assert not {"VIRTUAL_ENV", "PYTHONPATH", "XDG_STATE_HOME"} & set(shown.split())
