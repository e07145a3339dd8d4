"""probes/latency.py as two nodes run it, over the loopback interface."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common.frames import texts

ARGV = [sys.executable, "-B", str(payload_dir() / "run.py"), "probes.latency"]
PLAN = ("--runs=2", "--exchanges=300", "--seconds=0.2")


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts(output)]


@pytest.fixture
def server() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    argv = [*ARGV, "serve", "--address=127.0.0.1", *PLAN]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, json.loads(texts(process.stdout.readline())[0])["port"]
        process.kill()


def measure(port: int, *more: str) -> "subprocess.CompletedProcess[str]":
    argv = [*ARGV, "measure", "--address=127.0.0.1", f"--port={port}", *PLAN, *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_each_end_asks_in_turn(server: tuple["subprocess.Popen[str]", int]) -> None:
    process, port = server
    done = measure(port, "--bind=127.0.0.1")
    runs = events(done.stdout)
    assert done.returncode == 0 and process.wait(10) == 0
    assert [(each["event"], each["reverse"]) for each in runs] == [("run", False), ("run", True)] * 2
    for each in runs:
        us = each["us"]
        assert 1 <= each["count"] <= 300
        assert 0 < us["min"] <= us["p50"] <= us["p99"] <= us["max"] < 1e6


def test_a_port_on_which_nobody_listens_is_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = measure(unused.getsockname()[1])
    assert done.returncode == 1 and "Connection refused" in events(done.stdout)[0]["text"]


def test_somebody_else_who_answers_is_no_measurement() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        argv = [*ARGV, "measure", "--address=127.0.0.1", f"--port={other.getsockname()[1]}", *PLAN]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            client, _ = other.accept()
            client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            out, _ = process.communicate(timeout=30)
            client.close()
    assert process.returncode == 1 and events(out)[0] == {"event": "error", "text": "something else answers there"}
