# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Offers of a repository that is no source of this node yet, or was not read: apt below a folder of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible.module_utils.basic import AnsibleModule

    Offers = dict[str, list[str]]

# what apt needs below a root of its own
FOLDERS = (
    *("etc/apt/preferences.d", "etc/apt/sources.list.d", "var/lib/apt/lists/partial"),
    *("var/cache/apt/archives/partial", "var/lib/dpkg"),
)


def offers_of(module: AnsibleModule, line: str, keyring: bytes, names: list[str]) -> Offers:
    """{package: its versions} of this line's source, with {key} for its keyring; the node's apt is left as it is."""
    with tempfile.TemporaryDirectory(prefix="nodectl-apt-") as root:
        for folder in FOLDERS:
            Path(root, folder).mkdir(parents=True)
        Path(root, "var/lib/dpkg/status").touch()
        # by the suffix apt tells an armoured one
        key = Path(root, "key.asc" if keyring.startswith(b"-----BEGIN") else "key.gpg")
        key.write_bytes(keyring)
        source = line.replace("{key}", str(key))
        Path(root, "etc/apt/sources.list.d/aside.list").write_text(source + "\n", encoding="utf-8")
        apt = Apt(module, root)
        doing = f"read {line.partition('] ')[2]}"
        apt.run("apt-get", "update", "--quiet", "-o", "APT::Update::Error-Mode=any", doing=doing)
        return apt.offers(names)
