"""Fetch NVIDIA's nvidia-smi from Debian's non-free packages into nodectl's cache, and build a simulated NVML for it.

Nothing is installed: apt runs in a folder of its own, with this machine's archives and their component non-free.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from nodectl.lab.nvml import LIBRARY, programs, smi_folder
from scripts.nvml.build import build
from tests.booted.sources import apt_options, own_sources

# Debian 12 and 13: their drivers are 535 and 550
_RELEASES = ("bookworm", "trixie")
_HEADER = "nvidia-nvml-dev==13.5.37"


def main() -> int:
    """Fetch what is missing; 1 with the reason if it is not available."""
    target = smi_folder()
    target.mkdir(parents=True, exist_ok=True)
    try:
        if not (target / "nvml.h").is_file():
            _fetch_header(target)
        if len([*target.glob("*/nvidia-smi")]) < len(_RELEASES):
            for release in _RELEASES:
                _fetch_program(release, target)
        build(target / "nvml.h", target / LIBRARY)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        printed = str(getattr(error, "stderr", "")).strip().splitlines()
        print(f"nvidia-smi is not available: {printed[-1] if printed else error}", file=sys.stderr)
        return 1
    print(*programs(), target / LIBRARY, sep="\n")
    return 0


def _fetch_header(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, _HEADER]
        _run(pip)
        with ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/nvml.h"))
            (target / "nvml.h").write_bytes(wheel.read(name))


def _fetch_program(release: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        for name in ("lists/partial", "cache/archives/partial"):
            (state / name).mkdir(parents=True)
        (state / "status").touch()
        lines = [re.sub(r" main\b.*", " non-free", line) for line in own_sources(release=release)]
        (state / "sources.list").write_text("\n".join(lines) + "\n", encoding="utf-8")
        settings = f'Dir::State "{state}"; Dir::State::status "{state}/status"; Dir::Cache "{state}/cache";'
        settings += f' Dir::Etc::SourceList "{state}/sources.list"; Dir::Etc::SourceParts "-";'
        (state / "apt.conf").write_text("\n".join([settings, *apt_options()]) + "\n", encoding="utf-8")
        apt = ["env", f"APT_CONFIG={state}/apt.conf", "apt-get", "-q"]
        _run([*apt, "update"], state)
        _run([*apt, "download", "nvidia-smi"], state)
        package = next(state.glob("nvidia-smi_*.deb"))
        _run(["dpkg-deb", "--extract", str(package), str(state / "root")])
        version = target / package.name.split("_")[1].partition("-")[0]
        version.mkdir(exist_ok=True)
        (state / "root/usr/lib/nvidia/current/nvidia-smi").replace(version / "nvidia-smi")


def _run(argv: list[str], cwd: Path | None = None) -> None:
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
