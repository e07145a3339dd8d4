# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's repository on a node, whatever reads it: its address, the key that is trusted, another's source of it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.module_utils.urls import fetch_url

from ansible_collections.nodectl.fleet.plugins.module_utils import openpgp

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible.module_utils.basic import AnsibleModule

    Pins = list[dict[str, Any]]
    Contents = dict[str, "bytes | None"]
    Source = dict[str, str]


# the role's variables come from these where nodectl's playbooks run
IN_INVENTORY = "(in nodectl's inventory: nvidia_repo_baseurl, nvidia_repo_keyring)"


class Repository:
    """NVIDIA's repository as it should be, by the parameters, and as it is, by the package manager's files."""

    # the file that names the repository, and the one of its key
    SOURCE = KEYRING = ""
    # the distribution's names of NVIDIA's architectures
    ARCHITECTURES: ClassVar[dict[str, str]] = {}

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.root = Path(self.params["root"])
        parts = (self.params["base_url"].rstrip("/"), self.params["distribution"], self.params["architecture"])
        self.uri = "/".join(parts) + "/"

    def others(self) -> list[Source]:
        """Return sources of NVIDIA's packages that stand in files other than our own."""
        raise NotImplementedError

    def contradiction(self, other: Source) -> str:
        """Return why it cannot be adopted; "" if it can."""
        raise NotImplementedError

    def at(self, path: str) -> Path:
        """Return the path below the root."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is none."""
        try:
            return self.at(path).read_bytes()
        except OSError:
            return None

    def trusted(self) -> set[str]:
        """Fingerprints that count as the repository's key: those of the operator's file, else the profile's."""
        if self.params["keyring"]:
            return {
                name
                for name, _unused in self.parsed(base64.b64decode(self.params["keyring"]), "nvidia_repository_keyring")
            }
        return {self.params["fingerprint"]}

    def parsed(self, data: bytes, where: str) -> list[tuple[str, bytes]]:
        """Return the keys in it; the module ends where it holds none."""
        try:
            keys: list[tuple[str, bytes]] = openpgp.keys(data)
        except openpgp.BadKeyError as error:
            self.module.fail_json(msg=f"{where} is no OpenPGP public key: {error}")
        if not keys:
            self.module.fail_json(msg=f"{where} holds no key")
        return keys

    def adopted(self) -> str:
        """Return another's source of the same repository and key; the module ends where it contradicts ours."""
        others = self.others()
        for other in others:
            problem = self.contradiction(other)
            if problem:
                self.module.fail_json(
                    msg=f"{other['file']} names {other['uri']} {problem}: a repository is taken from one source only. "
                    f"Remove that entry, or point nvidia_repository_base_url and nvidia_repository_keyring "
                    f"{IN_INVENTORY} at what it names"
                )
        return str(others[0]["file"]) if others else ""

    def key(self) -> bytes:
        """Return the keyring as it should stand: nothing but the trusted keys."""
        if self.params["keyring"]:
            given = self.parsed(base64.b64decode(self.params["keyring"]), "nvidia_repository_keyring")
            return b"".join(data for _unused, data in given)
        wanted, present = self.params["fingerprint"], self.read(self.KEYRING)
        if present and [name for name, _unused in self.parsed(present, self.KEYRING)] == [wanted]:
            return present
        # NVIDIA calls the file after the key, of the older ones for apt in small letters
        name = wanted[-8:] + ".pub"
        for url in (self.uri + name, self.uri + name.lower()):
            response, info = fetch_url(self.module, url, timeout=60)
            if response is not None and info["status"] in (200, -1, None):
                break
        else:
            hint = (
                f"give nvidia_repository_keyring, or a nvidia_repository_base_url that this host reaches {IN_INVENTORY}"
            )
            self.module.fail_json(msg=f"{url}: {info.get('msg', 'no answer')}; {hint}")
        data = response.read()
        for name, key in self.parsed(data, url):
            if name == wanted:
                return key
        names = ", ".join(name for name, _unused in self.parsed(data, url))
        self.module.fail_json(msg=f"{url} holds {names}, expected {wanted}: not trusted, nothing was written")
        raise AssertionError
