"""What a rogue node, a rogue login and a rogue inventory tried, in short: none gets further than its own.

The whole of each is tested where it belongs; docs/trust.md names those tests.
"""

from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import InventoryError, NodectlError, UnreachableError
from nodectl.jobs import listing
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import encode
from nodectl.payload.jobs import heartbeat
from nodectl.transport.ssh_options import options_of
from nodectl.transport.ssh_target import target_of
from tests.jobs.test_rogue_answers import told

_SECRET = b"of this job"


def _answered(monkeypatch: pytest.MonkeyPatch, rows: list[Any]) -> None:
    def run_payload(_: object, host: Host, *args: Any, **more: Any) -> CommandResult:
        return CommandResult(host.name, (), Outcome.RAN, 0, encode(rows).decode(), "", 0.1)

    monkeypatch.setattr("nodectl.jobs.nodes.run_payload", run_payload)


class TestRogueNode:
    """Root on one node: it answers what it likes, for itself alone."""

    @pytest.mark.parametrize("row_id", ["../../.ssh", "20261121-040000-ab13"])
    def test_it_lists_no_job_of_another_name(self, monkeypatch: pytest.MonkeyPatch, row_id: str) -> None:
        _answered(monkeypatch, [{**told(0), "id": row_id}])
        found = listing.read_jobs(None, [Host("rogue", "rogue")], 1)  # type: ignore[arg-type]
        assert found.jobs == () and "whose id is none" in found.unreachable["rogue"]


class TestRogueLogin:
    """A login on a node, without the job's secret, that reaches the job's port."""

    def test_no_datagram_of_it_is_read(self) -> None:
        for datagram in (b"", b"nodectl1", b"nodectl1" + b"\xff" * 200, b"nodectl1" + b"0" * 32 + b"[" * 8000):
            assert heartbeat.decode(_SECRET, "job", datagram) is None


class TestRogueInventory:
    """An inventory that is to reach a host whose key nobody has accepted."""

    @pytest.mark.parametrize(
        "variables",
        [
            {"ansible_host_key_checking": False},
            {"ansible_ssh_host_key_checking": "no"},
            {"ansible_ssh_executable": "/tmp/ssh"},
            {"ansible_ssh_common_args": "-o StrictHostKeyChecking=false"},
            {"ansible_ssh_extra_args": "-o 'StrictHostKeyChecking=\"no\"'"},
            {"ansible_ssh_args": "-o 'stricthostkeychecking   accept-new'"},
            {"ansible_ssh_args": "-o KnownHostsCommand=/tmp/keys"},
            {"mitogen_via": "rogue"},
        ],
    )
    def test_it_is_refused_with_the_reason(self, variables: dict[str, object]) -> None:
        with pytest.raises(InventoryError) as caught:
            options_of(Host("gpu01", "127.0.0.1", variables=variables))
        assert caught.value.remedy

    @pytest.mark.parametrize(
        "line", ["StrictHostKeyChecking no", "KnownHostsCommand /tmp/keys", "VerifyHostKeyDNS yes"]
    )
    def test_a_file_that_it_names_is_refused_too(self, tmp_path: Path, line: str) -> None:
        (tmp_path / "config").write_text(f"Host *\n  {line}\n")
        variables = {"ansible_ssh_common_args": f"-F {tmp_path / 'config'}"}
        with pytest.raises((InventoryError, UnreachableError)) as caught:
            target_of(Host("gpu01", "127.0.0.1", variables=variables))
        assert isinstance(caught.value, NodectlError)
