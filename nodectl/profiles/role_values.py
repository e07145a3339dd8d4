"""Variables of our roles that a site sets itself: those that a profile says too, and names that are nearly ours.

Ansible gives a role the variable that inventory or `-e` has. Health, launch and trials have to expect the same.
Ansible ignores a misspelled name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nodectl.common import bounded_yaml
from nodectl.common.bounded_json import plain_value
from nodectl.common.spelling import nearest
from nodectl.errors import ProfileError
from nodectl.profiles.load import Document
from nodectl.profiles.overrides import merge_settings

# what an inventory may set beside the roles' own variables; docs/provision.md says what each is for
INVENTORY_VARIABLES = frozenset(Path(__file__).with_name("inventory_variables.txt").read_text(encoding="utf-8").split())
# a name this near to one of ours is a slip; what is further away is somebody's own variable
_NEAR = 0.88


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1", "t", "y")


def _sysctls(value: Any) -> Document:
    settings = [{"never_lower": False, **setting} for setting in value]
    return {setting.pop("key"): setting for setting in settings}


# role's variable → the tuning's group, its field (none: it is the whole group), the value as the tuning has it
TUNING: Mapping[str, tuple[str, str, Callable[[Any], Any]]] = {
    "gpu_settings_wanted": ("gpu", "", dict),
    "kernel_settings_wanted": ("sysctl", "", _sysctls),
    "limits_memlock": ("limits", "memlock", str),
    "limits_nofile": ("limits", "nofile", str),
    "nccl_env_variables": ("nccl", "", dict),
    "nic_irq": ("nic", "irq", lambda value: "numa" if _is_true(value) else None),
    "nic_mtu": ("nic", "mtu", lambda value: int(value or 0) or None),
    "nic_rings": ("nic", "rings", lambda value: "max" if _is_true(value) else None),
}
# role's variable → the field of a profile that it repeats; what is installed is the profiles' to say
PROFILES: Mapping[str, str] = {
    "cuda_package": "stack.system.toolkit.package",
    "cuda_version": "stack.system.toolkit.version",
    "cudnn_packages": "stack.system.cudnn.packages",
    "dcgm_packages": "stack.dcgm",
    "deepspeed_version": "stack.deepspeed",
    "fabric_manager_wanted": "hardware.nvswitch",
    "nccl_packages": "stack.system.nccl.packages",
    "nccl_tests_capability": "hardware.gpu.compute_capability",
    "nccl_tests_version": "stack.nccl_tests",
    "nvidia_driver_branch": "stack.driver.branch",
    "nvidia_driver_flavour": "stack.driver.flavour",
    "nvidia_driver_min": "stack.driver.min",
    "python_max": "stack.python.max",
    "python_min": "stack.python.min",
    "pytorch_python_max": "stack.python.max",
    "pytorch_python_min": "stack.python.min",
    "pytorch_requirements": "stack.torch and stack.packages",
    "rdma_devices": "hardware.nics",
}


def role_values(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a host that say what a tuning says, as plain data."""
    return {name: plain_value(variables[name]) for name in TUNING if name in variables}


def merge_role_value(tuning: Document, name: str, value: Any) -> None:
    """Put a role's variable over what the profiles say; ProfileError if the role could not read it either."""
    group, field, read = TUNING[name]
    try:
        change = read(value)
    except (TypeError, ValueError, KeyError) as error:
        remedy = f"give it as `ansible-doc -t role nodectl.fleet.{name.rpartition('_')[0]}` says"
        raise ProfileError(f"{name} is {value!r}: {error}", remedy) from error
    if not field:
        tuning[group] = {}
    merge_settings(tuning, {group: {field: change} if field else change}, name)


def refuse_repeated(variables: Mapping[str, Any]) -> None:
    """Raise ProfileError for a variable of a role that says what is installed, which hardware and stack profile say."""
    for name, field in PROFILES.items():
        if name in variables:
            # stack.driver.min as {stack: {driver: {min: …}}}
            names = field.partition(" and ")[0].split(".")
            override = "".join(f"{{{part}: " for part in names) + "…" + "}" * len(names)
            raise ProfileError(
                f"{name} is set for this host, and its profiles say it too, as {field}",
                f"change it where health sees it as well: in nodectl_overrides, {override}; or take it away",
            )


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
