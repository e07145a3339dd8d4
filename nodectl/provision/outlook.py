"""Outlook on a run before it begins: which hosts get which profiles by which roles, and who may be rebooted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from nodectl.common.node_paths import LAB_SHARE
from nodectl.common.nodeset import fold
from nodectl.common.resources import share_dir
from nodectl.common.spelling import meant
from nodectl.errors import ProfileError, UsageError
from nodectl.model.host import Host
from nodectl.profiles import KINDS
from nodectl.profiles.host import of_host

# the plays of site.yml that change a node
CHANGING = ("provision", "tune")
# Ansible's own words for tags
_ANSIBLE_TAGS = frozenset(("all", "always", "never", "tagged", "untagged"))


def described(hosts: Sequence[Host], roles: Sequence[str], allow_reboot: bool) -> list[str]:
    """Lines for the operator who is asked."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        names = [f"{kind} {host.variables.get(f'nodectl_{kind}', 'not set')}" for kind in KINDS]
        groups.setdefault(", ".join(names), []).append(host.name)
    lines = [f"{fold(names)}: {profiles}" for profiles, names in groups.items()]
    lines.append(f"roles: {', '.join(roles) or 'none'}")
    rebooted = [host.name for host in hosts if allow_reboot or host.is_true("nodectl_allow_reboot")]
    if rebooted:
        lines.append(f"rebooted one at a time where a change needs it: {fold(rebooted)}")
    lines.append("what stands there is recorded first, and `nodectl rollback` puts it back; --check --diff shows all")
    return lines


def selected_roles(tags: Sequence[str], skip_tags: Sequence[str]) -> list[str]:
    """Return the roles of the changing plays that Ansible's tags leave; UsageError for a tag that no role has."""
    wanted, unwanted = _words(tags), _words(skip_tags)
    all_tags = list(dict.fromkeys(tag for _, role_tags in _roles() for tag in role_tags))
    strange = sorted((wanted | unwanted) - {*all_tags, *_ANSIBLE_TAGS})
    if strange:
        hint = meant(strange[0], all_tags)
        raise UsageError(
            f"no role has the tag {', '.join(map(repr, strange))}", f"{hint}the tags are {', '.join(all_tags)}"
        )
    chosen: list[str] = []
    for name, role_tags in _roles():
        if name not in chosen and (not wanted or wanted & {*role_tags, "all"}) and not unwanted & {*role_tags}:
            chosen.append(name)
    return chosen


def lab_requirements(hosts: Sequence[Host], roles: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what hosts are to get from the lab's share, each set once; none without Python's or PyTorch's role.

    What a host's profiles refuse, the playbook says.
    """
    if not {"python", "pytorch"} & set(roles):
        return []
    requirements: dict[tuple[str, ...], None] = {}
    for host in hosts:
        if str(host.variables.get("nodectl_wheelhouse", "")).startswith(LAB_SHARE):
            with suppress(ProfileError):
                wanted = of_host(host)
                # the share has the CPU build alone, unless the operator says otherwise
                if wanted and (wanted.stack.cuda is None or os.environ.get("NODECTL_ALLOW_CUDA_WHEELS")):
                    requirements[wanted.stack.requirements] = None
    return [each for each in requirements if each]


def _words(options: Sequence[str]) -> set[str]:
    return {word.strip() for option in options for word in option.split(",")} - {""}


def _roles() -> Iterator[tuple[str, list[str]]]:
    folder = share_dir() / "playbooks"
    for playbook in CHANGING:
        for play in _entries(folder / f"{playbook}.yml"):
            for task in play["tasks"]:
                for part in _entries(folder / task["ansible.builtin.import_tasks"]):
                    if role := part.get("ansible.builtin.import_role"):
                        yield str(role["name"]).rpartition(".")[2], list(part.get("tags", ()))


def _entries(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return entries
