"""What the hosts of a gang have in common: one value as it is, several as a list, none; and who takes part."""

from typing import Any

import pytest

from nodectl.articles.gangs import common, with_torch
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions
from tests.probes.scripted import ENDPOINT, Answer, play


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, 1], 1),
        ([None, None], None),
        ([{"NCCL_ALGO": "Ring"}, {}], [{"NCCL_ALGO": "Ring"}, {}]),
    ],
)
def test_values_keep_their_kind(values: list[Any], told: object) -> None:
    found = common([{"event": "ready", "value": each} for each in values], "value")
    assert found == told and type(found) is type(told)


@pytest.mark.parametrize(
    ("asked_at", "answers_at", "hosts", "ready"),
    [
        ("192.0.2.1", "192.0.2.1", 2, True),
        ("192.0.2.1", "127.0.0.1", 2, False),
        # a name that /etc/hosts of the host itself gives an address of its own
        ("gpu01", "127.0.1.1", 2, False),
        ("192.0.2.1", "127.0.0.1", 1, True),
        ("localhost", "127.0.0.1", 2, True),
    ],
)
def test_a_host_that_only_reaches_itself_takes_no_part(
    monkeypatch: pytest.MonkeyPatch, asked_at: str, answers_at: str, hosts: int, ready: bool
) -> None:
    fleet = play(monkeypatch, lambda host, module, args: Answer([{**ENDPOINT, "address": answers_at}]))
    members = [Host(f"node{number}", asked_at) for number in range(hosts)]
    found, findings = with_torch(fleet, members, "retrieval", ProbeOptions())
    assert [each.host for each in found] == (members if ready else [])
    assert [(each.status, "--interface" in each.remedy) for each in findings] == (
        [] if ready else [(Status.UNKNOWN, True)] * hosts
    )
