"""Commands on this machine: the same results as over SSH."""

import time
from collections.abc import Iterator

import pytest

from nodectl.model.host import Host
from nodectl.model.result import Outcome
from nodectl.transport.router import LocalTransport

HOST = Host("here", "here", connection="local")


@pytest.fixture
def local() -> Iterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    transport.close()


@pytest.mark.parametrize(
    ("argv", "status", "stdout"),
    [
        (["printf", "%s|", "a b", "$HOME"], 0, "a b|$HOME|"),
        (["no-such-program"], 127, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["cat"], 0, ""),
    ],
)
def test_results(local: LocalTransport, argv: list[str], status: int, stdout: str) -> None:
    done = local.run(HOST, argv, timeout_s=10)
    assert (done.outcome, done.exit_status, done.stdout) == (Outcome.RAN, status, stdout)


@pytest.mark.parametrize("stdin", [None, b"x" * 1_000_000])
def test_deadline(local: LocalTransport, stdin: bytes | None) -> None:
    started = time.monotonic()
    done = local.run(HOST, ["sh", "-c", "echo before; sleep 60"], timeout_s=2, stdin=stdin)
    assert (done.outcome, done.exit_status, done.stdout) == (Outcome.TIMEOUT, None, "before\n")
    assert time.monotonic() - started < 20
