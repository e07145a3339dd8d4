#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: NVIDIA's repository on a node: one source, one key, only the profile's versions as candidates."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_source
short_description: NVIDIA's repository for apt or dnf, with its key and its pins
description:
  - C(keyed) writes the keyring and what unattended upgrades may not touch; then ansible.builtin.deb822_repository
    writes the source; then C(pinned) reads its lists where needed and writes the pin preferences.
  - With dnf C(keyed) writes key and source, and C(pinned) enables the driver's module stream, or none.
  - A source of the same repository that is there already and trusts the same key is adopted, any other refused.
author: The nodectl authors (!UNKNOWN)
options:
  base_url: {description: Address above the distributions., type: str, required: true}
  distribution: {description: Distribution and version without dots., type: str, required: true}
  architecture: {description: NVIDIA's name of it., type: str, choices: [x86_64, sbsa], required: true}
  fingerprint: {description: The key's fingerprint., type: str, required: true}
  keyring: {description: The keyring in base64; empty means fetch it and compare., type: str, default: ""}
  revoked: {description: Fingerprints of keys that must go., type: list, elements: str, default: []}
  pins: {description: Packages and their only candidates., type: list, elements: dict, default: []}
  driver_branch: {description: The only branch of the driver; empty blocks all., type: str, default: ""}
  driver_stream: {description: Its module stream for dnf; empty enables none., type: str, default: ""}
  frozen: {description: Patterns of what unattended upgrades leave alone., type: list, elements: str, default: []}
  fresh: {description: 'The key or the source was written just now, or will be.', type: bool, default: false}
  state:
    description: Look and refuse, or make it so in two steps.
    type: str
    choices: [look, keyed, pinned]
    required: true
  wanted:
    description: >-
      Packages that the run will ask for (names, version, nearest, driver, hint, others).
      C(look) refuses what nobody has.
    type: list
    elements: dict
    default: []
  root: {description: Where the file system begins., type: path, default: /}
"""
EXAMPLES = r"""
- nodectl.fleet.nvidia_source:
    state: look
    base_url: "{{ nvidia_repository_base_url }}"
    distribution: ubuntu2204
    architecture: x86_64
    fingerprint: "{{ nvidia_repository_key_fingerprint }}"
"""
RETURN = r"""
source: {description: The file that names the repository., type: str, returned: always}
uri: {description: Its address., type: str, returned: always}
architecture: {description: The distribution's name of it., type: str, returned: always}
signed_by: {description: The keyring of nodectl's own source., type: str, returned: always}
adopted: {description: The file is not nodectl's., type: bool, returned: always}
driver: {description: The version that the driver will have where C(look) asked for one., type: str, returned: always}
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import ahead, files, node_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import nvidia as apt_nvidia
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf import nvidia as dnf_nvidia

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible_collections.nodectl.fleet.plugins.module_utils.nvidia_repository import Repository

    Contents = dict[str, "bytes | None"]


def main() -> None:
    """Look and refuse, or make it so."""
    text: dict[str, Any] = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "base_url": text,
            "distribution": text,
            "architecture": {**text, "choices": ["sbsa", "x86_64"]},
            "fingerprint": text,
            "keyring": {"type": "str", "default": "", "no_log": False},
            "revoked": {"type": "list", "elements": "str", "default": []},
            "pins": {"type": "list", "elements": "dict", "default": []},
            "driver_branch": {"type": "str", "default": ""},
            "driver_stream": {"type": "str", "default": ""},
            "frozen": {"type": "list", "elements": "str", "default": []},
            "fresh": {"type": "bool", "default": False},
            "state": {**text, "choices": ["look", "keyed", "pinned"]},
            "wanted": {"type": "list", "elements": "dict", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    kind = dnf_nvidia.Repository if node_packages.has_dnf(module.params["root"]) else apt_nvidia.Repository
    repository = kind(module)
    adopted, state = repository.adopted(), module.params["state"]
    changes: list[dict[str, Any]] = []
    missing, driver = ahead.lacking(repository, module.params["wanted"]) if state == "look" else ([], "")
    if missing:
        module.fail_json(msg="; ".join(missing) + repository.system.without_lists() + ": nothing was changed")
    if state == "keyed":
        changes = write(repository, repository.keyed(adopted))
    elif state == "pinned":
        changes = write(repository, repository.pinned(adopted))
    module.exit_json(
        # a repository that is new has versions that nobody knew: also where the preferences stay
        changed=bool(changes) or (state == "pinned" and module.params["fresh"]),
        source=adopted or repository.SOURCE,
        uri=repository.uri,
        signed_by=repository.KEYRING,
        architecture=repository.ARCHITECTURES[module.params["architecture"]],
        adopted=bool(adopted),
        driver=driver,
        diff=changes,
    )


def write(repository: Repository, contents: Contents) -> list[dict[str, Any]]:
    """Put each file there in one step, or take it away; the differences, also in check mode."""
    changes = []
    for path, content in sorted(contents.items()):
        present = repository.read(path)
        if present == content:
            continue
        if not repository.module.check_mode:
            put(repository.at(path), content)
        sides = {"before": shown(present), "after": shown(content)}
        changes.append({"before_header": path, "after_header": path, **sides})
    return changes


def put(path: Path, content: bytes | None) -> None:
    """Replace the file atomically; remove it for None."""
    if content is None:
        path.unlink()
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    files.write_whole(str(path), lambda stream: stream.write(content), mode=0o644)


def shown(content: bytes | None) -> str:
    """Return a file for a diff: a keyring by its checksum."""
    if content is None:
        return ""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"(keyring, sha256 {hashlib.sha256(content).hexdigest()})\n"


if __name__ == "__main__":
    main()
