"""A trial has one id: `tune show` and `tune list` know it by that of its record on the hosts."""

from __future__ import annotations

from nodectl.transport.router import LocalTransport
from nodectl.trials.arming import armed


def test_the_record_on_the_hosts_is_named_by_the_trial_s_own_id() -> None:
    own = "20261121T120000Z-ab12"
    with armed((), None, [], LocalTransport(), trial=own, purpose="a test", note=lambda _: None) as state:
        assert state.playbooks.trial == own
