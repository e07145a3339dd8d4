"""One machine by two names is no two hosts; a clone and a container on the same kernel are."""

import pytest

from nodectl.errors import UsageError
from nodectl.ledger.accept.means import Means, refuse_twins


def test_one_machine_by_two_names_is_refused() -> None:
    told = {"a": ("boot", "id", "mac 1"), "b": None, "c": None}
    there = {name: Means(name, itself=itself) for name, itself in told.items()}
    refuse_twins(there | {"d": Means("d", itself=("boot", "id", "mac 2"))})
    with pytest.raises(UsageError, match="a, d are one machine"):
        refuse_twins(there | {"d": Means("d", itself=("boot", "id", "mac 1"))})
