"""A folder of packages as an apt source: all that a booted system without a way to any archive can install."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

# inside a booted system
POOL = "/srv/pool"
SOURCE = f"deb [trusted=yes] file:{POOL} ./\n"


def write_index(root: Path) -> None:
    """`Packages` beside the .debs below `root`, and the one source that names them."""
    pool = root / POOL.lstrip("/")
    stanzas = [stanza(package) for package in sorted(pool.glob("*.deb"))]
    (pool / "Packages").write_text("\n".join(stanzas))
    (root / "etc/apt/sources.list").write_text(SOURCE)


def stanza(package: Path) -> str:
    """The control fields of a .deb with where it lies and what it must be."""
    control = subprocess.run(["dpkg-deb", "--field", str(package)], capture_output=True, text=True, check=True).stdout
    data = package.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return f"{control.rstrip()}\nFilename: ./{package.name}\nSize: {len(data)}\nSHA256: {digest}\n"
