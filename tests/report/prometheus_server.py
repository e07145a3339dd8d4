"""A real Prometheus and its promtool: this machine's own, or Debian's package unpacked below the cache folder."""

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
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from nodectl.common.paths import cache_dir

_READY_S = 30.0


def binaries() -> Path:
    """The folder of prometheus and promtool; skips the test, with the reason, where there is none to be had."""
    folder = cache_dir() / "prometheus"
    if not (folder / "usr" / "bin" / "promtool").exists() and (missing := _unpack(folder)):
        return _of_this_machine(missing)
    return folder / "usr" / "bin"


def _of_this_machine(missing: str) -> Path:
    """Its own programs, of whatever version, where Debian's cannot be had."""
    own = shutil.which("promtool")
    if not own or not shutil.which("prometheus", path=str(Path(own).parent)):
        pytest.skip(f"no Prometheus is installed here, and {missing}")
    return Path(own).parent


def _unpack(folder: Path) -> str:
    """Debian's package (19 MB), without what it needs as a service, or why it cannot be had: nothing is installed."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return "Debian's package needs apt-get and dpkg-deb"
    making = folder.with_name(f".prometheus-{os.getpid()}")
    making.mkdir(parents=True)
    try:
        argv = ["apt-get", "download", "-qq", "prometheus"]
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

    def query(self, expr: str, at: float) -> list[dict[str, Any]]:
        """The series of an expression at a moment."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{urlencode({'query': expr, 'time': at})}") as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


@contextmanager
def serving(data: Path, rules: Path) -> Iterator[Server]:
    """Prometheus over this folder of blocks, with these rules; it scrapes nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = data.parent / "prometheus.yml"
    config.write_text(json.dumps({"rule_files": [str(rules)]}))
    argv = [
        str(binaries() / "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    log = data.parent / "prometheus.log"
    with log.open("w") as output, subprocess.Popen(argv, stdout=output, stderr=output) as process:
        try:
            _wait(port, process, log)
            yield Server(port)
        finally:
            process.kill()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        with suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    pytest.fail(f"Prometheus was not ready: {log.read_text()[-2000:]}")
