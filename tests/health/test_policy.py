"""What a site may say of its hosts' health: other numbers, and findings accepted for a time."""

from datetime import date

import pytest

from nodectl.errors import UsageError
from nodectl.health.policy import Policy, policy_of
from nodectl.model.finding import Finding
from nodectl.model.status import Status

TODAY = date(2026, 6, 1)
FOUND = Finding("n1", "nic_errors", Status.WARNING, "ens1 rx_errors", "none", "none", "9 more", "clean the cable")


def policy(*accept: dict[str, object]) -> Policy:
    return policy_of("n1", {"nodectl_health": {"accept": list(accept)}})


RULE: dict[str, object] = {"check": "nic_errors", "until": "2026-06-01", "why": "cable ordered"}


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ({}, "skipped"),
        ({"subject": "ens1 rx_errors"}, "skipped"),
        ({"subject": "ens2 rx_errors"}, "warning"),
        ({"check": "nic_flaps"}, "warning"),
        ({"until": "2026-05-31"}, "warning"),
    ],
)
def test_an_accepted_finding_is_skipped_until_its_day(rule: dict[str, object], status: str) -> None:
    after = policy({**RULE, **rule}).applied(FOUND, TODAY)
    assert after.status.value == status
    if status == "skipped":
        assert after.actual == "accepted until 2026-06-01: cable ordered (it is warning: 9 more)" and not after.remedy
    else:
        assert after.actual == FOUND.actual and after.remedy


def test_what_has_expired_counts_again_and_says_so() -> None:
    after = policy({**RULE, "until": "2026-05-01"}, {**RULE, "until": "2026-05-31", "why": "again"}).applied(
        FOUND, TODAY
    )
    assert after.evidence == "was accepted until 2026-05-31: again"
    assert policy({**RULE, "until": "2026-05-01"}, RULE).applied(FOUND, TODAY).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"treshold": {}}, "treshold: no such field"),
        (
            {"thresholds": {"disk_free_mb": 5}},
            "no threshold 'disk_free_mb'; did you mean disk_free_mib",
        ),
        ({"thresholds": {"disk_free_mib": "much"}}, "thresholds.disk_free_mib"),
        (
            {"accept": [{**RULE, "check": "nic_eror"}]},
            "accept.0.check: there is no check 'nic_eror'",
        ),
        ({"accept": [{"check": "nic_errors", "why": "x"}]}, "accept.0.until"),
        ({"accept": [{**RULE, "untill": "x"}]}, "accept.0.untill: no such field"),
        ({"xid": [79]}, "xid: Input should be a valid dictionary"),
        ({"xid": {"seventy": {}}}, "xid.seventy"),
        ({"xid": {79: "drain"}}, "xid.79: Input should be a mapping of fields"),
        ({"xid": {79: {"acton": "drain"}}}, "xid.79.acton: no such field"),
        ({"xid": {79: {"status": "bad"}}}, "xid.79.status: Input should be 'ok', 'warning' or 'failed'"),
        ({"xid": {79: {"action": "kick"}}}, "xid.79.action"),
        ("off", "nodectl_health"),
    ],
)
def test_a_typo_is_refused_with_its_path(given: object, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        policy_of("n1", {"nodectl_health": given})
    assert "nodectl_health of n1" in refused.value.message and said in refused.value.message
    assert refused.value.exit_status == 2
