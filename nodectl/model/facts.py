"""What stands for a subject of which a host gave no value."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Unread:
    """A subject without values: `absent` (the tool or device is not there) or `unknown` (it could not be read).

    `hung`: unknown because a tool did not end in time. `garbled`: the tool answered, and its answer was not
    understood, or a recording has none of it: nothing is known to be wrong with the host.
    """

    kind: Literal["absent", "unknown"]
    reason: str
    hung: bool = False
    garbled: bool = False
