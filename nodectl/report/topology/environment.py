"""Proposed NCCL environments as an inventory in YAML: host variables, with the reasons as comments."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nodectl.model.topology import NcclEnvironment

MARK = "# Proposed by `nodectl topology --propose-env`"
_HEAD = f"""\
{MARK} from what is on each host. Review it, then use it as one more inventory
# (-i), or move each host's part into its host_vars.
"""


def environment_yaml(proposed: Mapping[str, NcclEnvironment]) -> str:
    """Return an Ansible inventory that holds nothing but nodectl_nccl_env of each host."""
    lines = ["all:", "  hosts:"]
    for host, environment in proposed.items():
        lines.append(f"    {_quoted(host)}:")
        lines += [f"      {line}" for line in variables_yaml(environment)]
    return _HEAD + "\n".join(lines)


def variables_yaml(proposed: NcclEnvironment) -> list[str]:
    """Return the lines of one host's variables."""
    lines = ["nodectl_nccl_env:" if proposed.values else "nodectl_nccl_env: {}"]
    for name, value in proposed.values.items():
        lines += [f"  # {_comment(proposed.why.get(name, ''))}", f"  {name}: {_quoted(value)}"]
    lines += [f"  # {name} is not set: {_comment(why)}" for name, why in proposed.unset.items()]
    return lines


def _quoted(text: str) -> str:
    # a JSON string is a YAML one
    return json.dumps(text)


def _comment(text: str) -> str:
    """On one line, whatever a host put into a name."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
