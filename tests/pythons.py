"""The Pythons of this machine: tests try what is promised for each of them."""

import shutil
import subprocess
from pathlib import Path

# made by uv and by pyenv; they need not be on PATH
_FOLDERS = (".local/share/uv/python/cpython-{}.*", ".pyenv/versions/{}.*")


def pythons_of(version: str) -> list[str]:
    """Those of that version (`3.12`) that run and can make environments."""
    name = f"python{version}"
    elsewhere = [
        found for folder in _FOLDERS for found in sorted(Path.home().glob(f"{folder.format(version)}/bin/{name}"))
    ]
    probe = ["-c", "import venv, ensurepip"]
    return [
        path
        for path in [shutil.which(name), *map(str, elsewhere)]
        if path and subprocess.run([path, *probe], capture_output=True, check=False).returncode == 0
    ]
