"""What a host is to every other module: a name, a way to reach it, and its inventory variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the inventory; `address` is `ansible_host` rendered, else the name; `port`, `user` None if silent."""

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    connection: Literal["ssh", "local"] = "ssh"
    variables: Mapping[str, object] = field(default_factory=dict, hash=False, compare=False, repr=False)

    def is_true(self, variable: str) -> bool:
        """Return whether the inventory says yes to it: true, or the text `true`, `yes` or `1`."""
        value = self.variables.get(variable)
        return value is True or str(value).lower() in ("true", "yes", "1")
