"""paramiko without invoke, which it imports for `Match exec` of ssh_config: nodectl leaves that file to ssh itself.

A third of paramiko's import is invoke's.
"""

from __future__ import annotations

import sys

_is_spared = "invoke" not in sys.modules
if _is_spared:
    sys.modules["invoke"] = None  # type: ignore[assignment]  # an import of it fails then, which paramiko takes
try:
    import paramiko
finally:
    if _is_spared:
        del sys.modules["invoke"]

__all__ = ["paramiko"]
