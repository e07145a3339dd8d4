"""docs/health.md lists the checks and thresholds that there are."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_documentation_is_what_the_checks_say() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "health_doc.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
