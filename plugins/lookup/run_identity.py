# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible lookup: under which name the nodes record this run, and who started it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_identity
short_description: Name of this run, and who started it
description:
  - The name is that of `nodectl provision` (NODECTL_RUN); plain ansible-playbook makes one, the same for all its hosts.
author: The nodectl authors (!UNKNOWN)
options:
  _terms: {description: None are taken., required: false}
"""
EXAMPLES = r"""
run: "{{ lookup('nodectl.fleet.run_identity').run }}"
"""
RETURN = r"""
_raw:
  description: The run, by whom (login and machine of the operator), and the version of nodectl.
  type: list
  elements: dict
"""

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.lookup import LookupBase


def own_name() -> str:
    """One name for the whole run: whichever worker comes first leaves it in Ansible's folder for this run."""
    kept = Path(constants.DEFAULT_LOCAL_TMP, "nodectl-run")
    if not kept.exists():
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
        handle, staged = tempfile.mkstemp(dir=constants.DEFAULT_LOCAL_TMP)
        with os.fdopen(handle, "w") as stream:
            stream.write(name)
        try:
            kept.hardlink_to(staged)
        except FileExistsError:
            pass
        finally:
            Path(staged).unlink()
    return kept.read_text()


class LookupModule(LookupBase):  # type: ignore[misc]  # Ansible ships no types
    """Known on the controller alone."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
        """One dictionary."""
        from nodectl import __version__ as version
        from nodectl.common.process import operator

        return [{"run": os.environ.get("NODECTL_RUN") or own_name(), "by": operator(), "nodectl": version}]
