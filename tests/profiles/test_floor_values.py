"""What a floor may ask for."""

from typing import Any

import pytest
from pydantic import ValidationError

from nodectl.profiles.schema import Floor

FLOOR: dict[str, Any] = {"probe": "tcp", "unit": "Gb/s", "source": "a test"}


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0, -1.0])
def test_a_value_that_nothing_reaches_or_everything_does_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="value"):
        Floor(**FLOOR, value=value)
