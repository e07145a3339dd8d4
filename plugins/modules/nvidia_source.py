#!/usr/bin/python
"""Ansible module: NVIDIA's apt repository on a node: one source, one key, only the profile's versions as candidates."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import apt_sources, node_files, nvidia_apt_files
from ansible_collections.nodectl.fleet.plugins.module_utils.findings import compared, finding
from ansible_collections.nodectl.fleet.plugins.module_utils.nvidia_repository import Repository

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Files = dict[str, "bytes | None"]
    Finding = dict[str, str]

DOCUMENTATION = r"""
module: nvidia_source
short_description: NVIDIA's apt repository, with its key and its pins
description:
  - Writes source, keyring, pin preferences and what unattended upgrades may not touch; reads the lists where needed.
  - A source of the same repository that is there already and trusts the same key is adopted, any other refused.
author: The nodectl authors
options:
  base_url: {description: Address above the distributions., type: str, required: true}
  distribution: {description: Distribution and version without dots., type: str, required: true}
  architecture: {description: NVIDIA's name of it., type: str, choices: [x86_64, sbsa], required: true}
  fingerprint: {description: The key's fingerprint., type: str, required: true}
  keyring: {description: The keyring in base64; empty means fetch it and compare., type: str, default: ""}
  revoked: {description: Fingerprints of keys that must go., type: list, elements: str, default: []}
  pins: {description: Packages and their only candidates., type: list, elements: dict, default: []}
  driver_branch: {description: The only branch of the driver; empty blocks all., type: str, default: ""}
  state:
    description: Look and refuse, make it so, or compare.
    type: str
    choices: [look, present, verify]
    default: present
  root: {description: Where the file system begins., type: path, default: /}
"""
EXAMPLES = r"""
- nvidia_source:
    base_url: "{{ nvidia_repository_base_url }}"
    distribution: ubuntu2204
    architecture: x86_64
    fingerprint: "{{ nvidia_repository_key_fingerprint }}"
"""
RETURN = r"""
source: {description: The file that names the repository., type: str, returned: always}
adopted: {description: The file is not nodectl's., type: bool, returned: always}
findings: {description: What differs., type: list, elements: dict, returned: always}
"""

CHECK = "nvidia_repository"


def main() -> None:
    """Look and refuse, make it so, or compare."""
    text: dict[str, Any] = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "base_url": text,
            "distribution": text,
            "architecture": {**text, "choices": sorted(nvidia_apt_files.ARCHITECTURES)},
            "fingerprint": text,
            "keyring": {"type": "str", "default": "", "no_log": False},
            "revoked": {"type": "list", "elements": "str", "default": []},
            "pins": {"type": "list", "elements": "dict", "default": []},
            "driver_branch": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["look", "present", "verify"], "default": "present"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    repository = Repository(module)
    if module.params["state"] == "present":
        converge(repository)
    adopted = repository.adopted()
    found = judged(repository, adopted) if module.params["state"] == "verify" else []
    where = adopted or nvidia_apt_files.SOURCE
    module.exit_json(changed=False, source=where, adopted=bool(adopted), findings=found)


def converge(repository: Repository) -> None:
    """Key and source first, then what apt reads of it decides the preferences; the module ends here."""
    adopted, params = repository.adopted(), repository.params
    files: Files = {nvidia_apt_files.UNATTENDED: nvidia_apt_files.unattended().encode()}
    own = nvidia_apt_files.source(repository.uri, params["architecture"], str(repository.at(nvidia_apt_files.KEYRING)))
    files[nvidia_apt_files.KEYRING] = None if adopted else repository.key()
    files[nvidia_apt_files.SOURCE] = None if adopted else own.encode()
    files.update({path: data or None for path, data in repository.revoked().items()})
    changes = write(repository, files)
    fresh = any(change["path"] in (nvidia_apt_files.KEYRING, nvidia_apt_files.SOURCE) for change in changes)
    pins = repository.resolved(adopted or nvidia_apt_files.SOURCE, fresh)
    text = nvidia_apt_files.preferences(pins, params["driver_branch"])
    changes += write(repository, {nvidia_apt_files.PREFERENCES: text.encode()})
    repository.module.exit_json(
        changed=bool(changes),
        source=adopted or nvidia_apt_files.SOURCE,
        adopted=bool(adopted),
        findings=[],
        diff=[change["diff"] for change in changes],
    )


def write(repository: Repository, files: Files) -> list[dict[str, Any]]:
    """Put each file there in one step, or take it away; the changes, also in check mode."""
    changes = []
    for path, content in sorted(files.items()):
        present = repository.read(path)
        if present == content:
            continue
        if not repository.module.check_mode:
            put(repository.at(path), content)
        sides = {"before": shown(present), "after": shown(content)}
        changes.append({"path": path, "diff": {"before_header": path, "after_header": path, **sides}})
    return changes


def put(path: Path, content: bytes | None) -> None:
    """Write beside it and rename, or remove."""
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    node_files.write_whole(str(path), lambda stream: stream.write(content), mode=0o644)


def judged(repository: Repository, adopted: str) -> list[Finding]:
    """What apt itself holds: its sources, its candidates, its settings, its trusted keys."""
    again, found = "provision again", []
    named = [
        each["file"] for each in apt_sources.read(str(repository.root)) if apt_sources.same(each["uri"], repository.uri)
    ]
    wanted = adopted or nvidia_apt_files.SOURCE
    found.append(compared(CHECK, repository.uri, wanted, ", ".join(named) or "no source", again))
    if not repository.lists()[0]:
        found.append(
            finding(CHECK, "failed", "lists", expected="read", actual="apt has not read it", remedy="apt-get update")
        )
    for name, version, candidate in repository.candidates():
        found.append(compared(CHECK, name, version, candidate, again))
    listed = repository.apt.call("apt-config", "dump", "Unattended-Upgrade::Package-Blacklist")[1]
    missing = [name for name in nvidia_apt_files.FROZEN if f'"{name}"' not in listed]
    actual = f"may touch {', '.join(missing)}" if missing else "leave driver, fabric manager and kernel alone"
    expected = "leave driver, fabric manager and kernel alone"
    found.append(compared(CHECK, "unattended upgrades", expected, actual, again))
    for path in repository.revoked():
        found.append(finding(CHECK, "failed", path, expected="no revoked key", actual="trusts one", remedy=again))
    return found


def shown(content: bytes | None) -> str:
    """A file for a diff: a keyring by its checksum."""
    if content is None:
        return ""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"(keyring, sha256 {hashlib.sha256(content).hexdigest()})\n"


if __name__ == "__main__":
    main()
