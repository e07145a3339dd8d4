"""What a script of the operator's own asks of a group, and cannot be, is refused by name: it neither hangs nor ends."""

import pytest

from nodectl.errors import UsageError
from nodectl.transport.fabric_group import CheckedGroup, QuotingRemote


@pytest.mark.parametrize("forks", [0, -1])
def test_less_than_one_host_at_a_time_is_refused(forks: int) -> None:
    with pytest.raises(UsageError, match=f"forks={forks}"):
        CheckedGroup((), forks)


def test_a_value_with_nul_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="the value of NAME has a NUL"):
        QuotingRemote(context=None).start("true", "/bin/sh", {"NAME": "a\0b"})
