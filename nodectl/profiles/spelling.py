"""Variables of an inventory that look like one of ours and are none: Ansible itself ignores a misspelled name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nodectl.common import bounded_yaml
from nodectl.common.spelling import nearest

# what an inventory may set beside the roles' own variables; docs/provision.md says what each is for
INVENTORY_VARIABLES = frozenset(Path(__file__).with_name("inventory_variables.txt").read_text(encoding="utf-8").split())
# a name this near to one of ours is a slip; what is further away is somebody's own variable
_NEAR = 0.88


def misspelled(names: Iterable[str], share: Path) -> list[tuple[str, str]]:
    """(name, the one that was meant) for each slip; `share` is the folder that holds roles and playbooks."""
    roles = sorted(folder.name for folder in (share / "roles").iterdir() if folder.is_dir())
    prefixes = ("nodectl_", "nvidia_repo_", *(f"{role}_" for role in roles))
    unsure = sorted({name for name in names if name.startswith(prefixes)} - INVENTORY_VARIABLES)
    if not unsure:
        return []
    variables = INVENTORY_VARIABLES.union(*(role_variables(share / "roles" / role) for role in roles))
    return [(name, near) for name in unsure if name not in variables and (near := nearest(name, variables, _NEAR))]


def role_variables(role: Path) -> frozenset[str]:
    """Return the names that a role takes: its arguments, defaults and variables."""
    names: set[str] = set()
    for path in (*role.glob("defaults/*.yml"), *role.glob("vars/*.yml")):
        names |= set(_read(path))
    for entry in _read(role / "meta" / "argument_specs.yml").get("argument_specs", {}).values():
        names |= set(entry.get("options", {}))
    return frozenset(names)


def _read(path: Path) -> dict[str, Any]:
    return dict(bounded_yaml.load(path.read_bytes()) or {})
