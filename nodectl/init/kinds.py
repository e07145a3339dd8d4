"""The kinds of hosts that there is an inventory for: one file each, with the profiles and why they were chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nodectl.common import bounded_yaml
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.init.choices import Reasons, choices
from nodectl.init.draft import TEMPLATES, Draft, Group, group_name

_EXAMPLE = ("node01", "node02")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of hosts: its profiles, what is done with the driver, and what is to be said of each choice."""

    about: str
    hardware: str
    stack: str
    tuning: str = "stock"
    driver: str = ""
    why_hardware: str = ""
    why_stack: str = ""
    why_tuning: str = ""
    why_driver: str = ""

    def draft(self, name: str) -> Draft:
        """The inventory of two hosts whose names are to be replaced."""
        profiles = {"hardware": self.hardware, "stack": self.stack, "tuning": self.tuning}
        reasons = Reasons(self.why_hardware, self.why_stack, self.why_tuning, self.why_driver)
        about = f"{self.about[0].upper()}{self.about[1:]}"
        group = Group(
            group_name(name),
            f"{about}: what they are to be, as `nodectl init --kind {name}` proposes it.",
            {host: {} for host in _EXAMPLE},
            choices(profiles, reasons, self.driver),
        )
        head = (
            f"{about}.\nReplace {' and '.join(_EXAMPLE)} by your hosts, as ~/.ssh/config or DNS has their names, or"
            " with ansible_host: ADDRESS and ansible_user: LOGIN below the name. The login is root, or may use sudo."
        )
        return Draft(head, (group,), {})


def kinds() -> dict[str, str]:
    """Return what there is, with its description."""
    return {path.stem: str(_read(path.stem)["about"]) for path in sorted(TEMPLATES.glob("*.yml"))}


def kind_named(name: str) -> Kind:
    """UsageError where there is no such kind."""
    if name not in (known := kinds()):
        raise UsageError(f"there is no kind {name!r}", f"{meant(name, known)}the kinds are {', '.join(known)}")
    return Kind(**_read(name))


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = bounded_yaml.load((TEMPLATES / f"{name}.yml").read_bytes())
    return document
