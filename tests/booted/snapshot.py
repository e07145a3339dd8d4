"""A booted system's state by other means than nodectl's own record, and what differs between two."""

from __future__ import annotations

import json
from pathlib import Path

from tests.booted.system import System
from tests.node_snapshot import compare, fenced

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = "/run/node_snapshot.py"
# who happens to be logged in is nobody's setting
_LOGINS = ("unit session-*.scope",)


def take(system: System) -> dict[str, str]:
    """Paths, packages, units and live values."""
    script = (_ROOT / "tests" / "node_snapshot.py").read_text()
    system.run(f"cat > {_SCRIPT}", stdin=script)
    found: dict[str, str] = json.loads(system.out(f"python3 {_SCRIPT} take", timeout_s=240))
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """But for those that the documentation of rollback lists."""
    document = (_ROOT / "docs" / "rollback.md").read_text()
    return compare(before, after, [*fenced(document, "exceptions"), *_LOGINS])
