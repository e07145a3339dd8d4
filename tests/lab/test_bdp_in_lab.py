"""Socket buffers against bandwidth x delay on links of 20 ms: what the model says is measured, within 15 %."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("lab_machine")]

MIB = 1 << 20
SIZES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Links:
    """A lab whose links have a delay of 10 ms each way."""

    cli: Cli
    name: str
    inventory: str

    def flow(self, buffer_mib: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One direction's measurement with buffers of this size at both ends, and the findings."""
        size = buffer_mib * MIB
        settings = f"net.ipv4.tcp_rmem='4096 131072 {size}' net.ipv4.tcp_wmem='4096 16384 {size}'"
        self.cli("-i", self.inventory, "exec", "--", "sh", "-c", f"sysctl -qw {settings}")
        args = ("-i", self.inventory, "--output", "json", "probe", "tcp", "--duration", "3", "--repetitions", "3")
        found = json.loads(self.cli(*args).stdout)
        return found["measurements"][0], found["findings"]


@pytest.fixture(scope="module", params=["", "1gbit"], ids=["uncapped", "1gbit"])
def links(
    request: pytest.FixtureRequest, cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Links]:
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("bdp"))})
    shape = ["--rate", request.param] if request.param else []
    with cli.lab("bdp", 2, "--delay", "10ms", *shape) as lab:
        yield Links(cli, request.param, lab.inventory)


def test_the_model_says_what_other_buffers_reach(links: Links) -> None:
    capped = bool(links.name)
    rate_bit_s = 1e9 * 0.956 if capped else float("inf")  # what TCP carries of a gigabit
    limited = {}
    for size in SIZES:
        found, findings = links.flow(size)
        conditions = found["conditions"]
        # other work on the machine only ever takes something away
        reached = max(conditions["values_gbit_s"]) * 1e9
        assert conditions["buffer_bytes"] == size * MIB and 20 <= conditions["rtt_ms"] < 22
        limited[size] = conditions["limited_by"]
        assert bool(findings) is bool(limited[size]) or len(findings) == 1
        # the probe's own model: the window that was offered, a round trip, and the link
        assert min(rate_bit_s, conditions["model_bit_s"]) == pytest.approx(reached, rel=0.15)
    assert limited[2] == "receive buffer" and (limited[16] is None) is capped
