"""jobs/preflight as a node runs it: a process of the machine's own python3, JSON in and out."""

import json
import os
import pwd
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts
from tests.payload.fleet import Fleet

PAYLOAD = (str(payload_dir() / "run.py"), "jobs.preflight.answer")


def run(mode: str, request: dict[str, Any], state: Path) -> list[dict[str, Any]]:
    env = {"PATH": os.environ["PATH"], "HOME": str(state), "XDG_STATE_HOME": str(state / "state")}
    done = subprocess.run(
        [sys.executable, "-B", *PAYLOAD, mode, *([json.dumps(request)] if mode == "look" else [])],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=True,
    )
    return [json.loads(text) for text in texts(done.stdout)]


def look(state: Path, **changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "interface": "",
        "address": "127.0.0.1",
        "others": [],
        "ports": [],
        "launcher": "/nonexistent",
        "venv": "",
        "checkpoint_dir": "",
        "paths": [],
        "image": "",
        "engines": [],
        "engine": "",
    }
    [answer] = run("look", {**request, **changes}, state)
    return answer


def test_it_sees_ports_in_use_by_tcp_or_udp(tmp_path: Path) -> None:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as unused:
        for one in (tcp, udp, unused):
            one.bind(("127.0.0.1", 0))
        tcp.listen()
        ports = [one.getsockname()[1] for one in (tcp, udp, unused)]
        unused.close()
        assert look(tmp_path, ports=ports)["free_ports"]["free"] == ports[2:]


def test_it_reads_versions_without_importing(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    for name in ("torch-2.13.0+cpu.dist-info", "torchvision-0.9.dist-info", "nvidia_nccl_cu12-2.27.3.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text("cuda: Optional[str] = None\nhip: Optional[str] = None\n")
    (tmp_path / "venv" / "bin").mkdir()
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.2\n")
    launcher = tmp_path / "launch"
    launcher.write_text("#!/bin/sh\n")
    answer = look(tmp_path, venv=str(tmp_path / "venv"), launcher=str(launcher))
    assert answer["job_venv"] == {
        "python": "3.11.2",
        "torch": "2.13.0+cpu",
        "nccl": "2.27.3",
        "cuda": "none",
        "engine": "",
    }
    (packages / "torch" / "version.py").write_text("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    assert look(tmp_path, venv=str(tmp_path / "venv"))["job_venv"]["cuda"] == "13.0"
    assert len(answer["launcher"]["sha256"]) == 64 and not answer["launcher"]["executable"]


@pytest.mark.parametrize(
    ("record", "python", "version"),
    [
        ("conda-meta/python-3.11.8-h955ad1f_0.json", "python3.11", "3.11.8"),
        ("lib/python3/dist-packages/torch-2.6.0.dist-info/METADATA", "python3.12", "3.12"),
    ],
)
def test_a_conda_environment_and_a_system_are_environments_too(
    tmp_path: Path, record: str, python: str, version: str
) -> None:
    for place in (record, f"bin/{python}", "lib/python3.11/site-packages/torch-2.6.0.dist-info/METADATA"):
        (tmp_path / "env" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "env" / place).touch(0o755)
    (tmp_path / "env" / "bin" / "python3").symlink_to(python)
    answer = look(tmp_path, venv=str(tmp_path / "env"))
    assert answer["job_venv"] == {"python": version, "torch": "2.6.0", "nccl": "", "cuda": "", "engine": ""}


SMI = """#!/bin/sh
case $1 in
-L) echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)' ;;
*) echo '{pid}, 20480, /usr/bin/python3'; echo '{pid}, 20480, /usr/bin/python3'; echo '999999999, [N/A], train' ;;
esac
"""


def test_who_computes_on_the_gpus_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI.format(pid=os.getpid()))
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = look(tmp_path)
    assert answer["gpu_count"] == {"count": 1}
    login = pwd.getpwuid(os.getuid()).pw_name
    assert answer["gpu_users"]["processes"] == [
        f"pid {os.getpid()} (python3, {login}), 40960 MiB on 2 GPUs",
        "pid 999999999 (train, login unknown)",
    ]


def test_a_job_of_another_state_folder_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODECTL_LOCK_FOLDER", str(tmp_path))
    fleet = Fleet(tmp_path, 1)
    try:
        job_id = fleet.launch("import time; time.sleep(1000)")
        assert job_id in look(tmp_path)["running_jobs"]["ids"]
    finally:
        fleet.close()


def test_it_writes_for_real_and_leaves_nothing(tmp_path: Path) -> None:
    answer = look(tmp_path, checkpoint_dir=str(tmp_path / "deep" / "er"))
    for name in ("state_folder", "checkpoint_folder"):
        assert answer[name]["error"] == "" and answer[name]["free_mib"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_network_chooses_each_hosts_own_interface(tmp_path: Path) -> None:
    everything = look(tmp_path, interface="0.0.0.0/0")["job_address"]
    assert everything["address"] and everything["interface"]
    narrow = look(tmp_path, interface=f"{everything['address']}/32")["job_address"]
    assert (narrow["address"], narrow["interface"]) == (everything["address"], everything["interface"])
    assert look(tmp_path, interface="203.0.113.0/24")["job_address"]["address"] == ""


def free_port(kind: int) -> int:
    with socket.socket(type=kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_two_hosts_find_each_other_by_both_protocols(tmp_path: Path) -> None:
    ways = {"address": "127.0.0.1", "tcp_port": free_port(socket.SOCK_STREAM), "udp_port": free_port(socket.SOCK_DGRAM)}
    asked = {**ways, "token": "t0ken"}
    said: list[dict[str, Any]] = []
    server = threading.Thread(
        target=lambda: said.extend(run("listen", {**asked, "seconds": 20, "expected": 2}, tmp_path)), daemon=True
    )
    server.start()
    for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):  # who asks again finds the listener still there
        assert run("connect", {**asked, "source": source, "seconds": 5}, tmp_path) == [{"udp": "", "tcp": ""}]
    server.join(10)
    assert not server.is_alive() and said == [{"listening": True}]


@pytest.mark.parametrize("token", ["other", None])
def test_nobody_or_somebody_else_there_is_no_way(tmp_path: Path, token: str | None) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        port = stranger.getsockname()[1]
        if token:
            stranger.listen()
            threading.Thread(target=lambda: stranger.accept()[0].sendall(token.encode()), daemon=True).start()
        asked = {"address": "127.0.0.1", "tcp_port": port, "udp_port": free_port(socket.SOCK_DGRAM), "token": "t0ken"}
        [answer] = run("connect", {**asked, "source": "127.0.0.1", "seconds": 1}, tmp_path)
    assert answer["tcp"] and answer["udp"]


def test_needed_paths_say_why_they_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").touch()
    asked = [
        *((str(tmp_path / "data"), "any"), (str(tmp_path / "train.py"), "folder"), (str(tmp_path / "none"), "any")),
        *((str(tmp_path), "file"), (str(tmp_path / "train.py" / "x"), "any")),
    ]
    errors = look(tmp_path, paths=asked)["needed_paths"]["errors"]
    assert list(errors.values()) == [
        "",
        "it is no folder",
        "No such file or directory",
        "it is no file",
        errors[asked[4][0]],
    ]
    assert errors[asked[4][0]] == "Not a directory"
