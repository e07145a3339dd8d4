# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible lookup: a keyring of the controller, armoured or binary, in base64."""

from __future__ import annotations

DOCUMENTATION = r"""
name: keyring_file
short_description: A keyring of the controller in base64
description: Reads the file as bytes, which the file lookup cannot, and compares its checksum where one is given.
author: The nodectl authors (!UNKNOWN)
options:
  _terms: {description: Path of the keyring; empty gives an empty text., required: true}
  sha256: {description: Its SHA-256; empty means any., type: str, default: ""}
"""
EXAMPLES = r"""
keyring: "{{ lookup('nodectl.fleet.keyring_file', nvidia_repo_keyring, sha256=nvidia_repo_keyring_sha256) }}"
"""
RETURN = r"""
_raw: {description: The file in base64., type: list, elements: str}
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):  # type: ignore[misc]  # Ansible ships no types
    """Reads keyrings of the controller as bytes."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[str]:
        """One text a path; AnsibleError with the reason and the remedy."""
        self.set_options(var_options=variables, direct=options)
        return [self._read(str(term)) if term else "" for term in terms]

    def _read(self, name: str) -> str:
        path, wanted = Path(name).expanduser(), str(self.get_option("sha256")).lower()
        try:
            data = path.read_bytes()
        except OSError as error:
            raise AnsibleError(f"the keyring {path}: {error.strerror}: name a file of this machine") from None
        digest = hashlib.sha256(data).hexdigest()
        if wanted and digest != wanted:
            raise AnsibleError(
                f"the keyring {path} has the SHA-256 {digest}, {wanted} was expected (its variable ends with _sha256): "
                "take the file anew from where you trust it"
            )
        return base64.b64encode(data).decode()
