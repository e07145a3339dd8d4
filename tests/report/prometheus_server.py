"""A real Prometheus, promtool and node_exporter: this machine's own, or Debian's packages below the cache folder."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from nodectl.common.paths import cache_dir

_READY_S = 30.0


def binaries(program: str = "prometheus") -> Path:
    """The folder of Debian's `program`, of promtool too; skips the test, with the reason, where there is none."""
    folder = cache_dir() / program
    if not (folder / "usr" / "bin" / program).exists() and (missing := _unpack(program, folder)):
        if not (own := shutil.which(program)) or not shutil.which("promtool"):
            pytest.skip(f"no {program} is installed here, and {missing}")
        return Path(own).parent
    return folder / "usr" / "bin"


def _unpack(program: str, folder: Path) -> str:
    """Debian's package, without what it needs as a service, or why it cannot be had: nothing is installed."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "Debian's package needs apt-get and dpkg-deb"
    making = folder.with_name(f".{program}-{os.getpid()}")
    making.mkdir(parents=True)
    try:
        argv = ["apt-get", "download", "-qq", program]
        done = subprocess.run(argv, cwd=making, capture_output=True, text=True, check=False, timeout=300)
        packages = list(making.glob("*.deb"))
        if not packages:
            reason = done.stderr.strip().splitlines()
            return f"apt-get has none: {reason[-1] if reason else 'no reason given'}"
        subprocess.run(["dpkg-deb", "--extract", packages[0], making / "root"], check=True)
        if not folder.exists():  # another process may have been first
            (making / "root").rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return ""


def promtool(*argv: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool with this text as its input."""
    tool = binaries() / "promtool"
    return subprocess.run([tool, *argv], input=text, capture_output=True, text=True, check=False, timeout=60)


@dataclass(frozen=True, slots=True)
class Server:
    """A Prometheus that answers on loopback."""

    port: int

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        found: list[dict[str, Any]] = self.asked(f"query?{urlencode({'query': expr})}")["result"]
        return found

    def asked(self, path: str) -> dict[str, Any]:
        """The data of an answer of its API."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}") as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data


@contextmanager
def serving(folder: Path, rules: Path, targets: dict[str, str]) -> Iterator[Server]:
    """Prometheus with these rules, which scrapes these addresses of jobs each second."""
    jobs = [{"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()]
    config = folder / "prometheus.yml"
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(json.dumps({"global": every, "rule_files": [str(rules)], "scrape_configs": jobs}))
    argv = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
    with _running(folder, "prometheus", argv, "/-/ready") as port:
        yield Server(port)


@contextmanager
def node_exporter(folder: Path, textfiles: Path) -> Iterator[str]:
    """The address of a node_exporter that tells this folder's textfiles."""
    argv = [f"--collector.textfile.directory={textfiles}"]
    with _running(folder, "prometheus-node-exporter", argv, "/") as port:
        yield f"127.0.0.1:{port}"


@contextmanager
def telling(text: str) -> Iterator[str]:
    """The address of an exporter that tells this text."""

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def _running(folder: Path, program: str, argv: list[str], ready: str) -> Iterator[int]:
    """The port of a program on loopback, once it answers at `ready`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [str(binaries(program) / program), *argv, f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / f"{program}.log"
    with log.open("w") as output, subprocess.Popen(argv, stdout=output, stderr=output) as process:
        try:
            _wait(f"127.0.0.1:{port}{ready}", process, log)
            yield port
        finally:
            process.kill()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        with suppress(URLError, ConnectionError), urlopen(f"http://{address}", timeout=5):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    pytest.fail(f"it was not ready: {log.read_text()[-2000:]}")
