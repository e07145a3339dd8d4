#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: NVIDIA's repository on a node: one source, one key, only the profile's versions as candidates."""

from __future__ import annotations

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
