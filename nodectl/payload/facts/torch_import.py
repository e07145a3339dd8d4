"""The identity of a package when it is imported, and the libraries that it loads: `torch_import.py torch`.

Prints `NODECTL` and JSON. An import takes seconds, so its answer is kept, and given again for as long as no package,
loader setting or driver has changed.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

CACHE = Path("/var/lib/nodectl")


def loaded(name: str) -> str:
    """Return the file of a library that this process has loaded; empty if it has not."""
    lines = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    paths = {fields[-1] for fields in lines if len(fields) > 5 and Path(fields[-1]).name.startswith(name)}
    return sorted(paths)[0] if paths else ""


def dotted(code: int) -> str:
    """22105 as 2.21.5, 2708 as 2.7.8: both kinds are in use."""
    big = 10000 if code >= 10000 else 1000
    return "%d.%d.%d" % (code // big, code % big // 100, code % 100)


def look_torch(torch: Any) -> dict[str, str]:
    """Return the libraries' own versions; torch's words may be those of its build."""
    answer = {"version": torch.__version__, "cuda": torch.version.cuda or ""}
    path = loaded("libnccl.so")
    if path:
        code = ctypes.c_int()
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(code))
        answer["nccl"] = dotted(code.value)
    elif hasattr(torch._C, "_nccl_version"):
        version = torch.cuda.nccl.version()
        answer["nccl"] = dotted(version) if isinstance(version, int) else ".".join(str(part) for part in version[:3])
    answer["nccl_path"] = path
    cudnn = torch.backends.cudnn.version() if answer["cuda"] else None
    if cudnn:
        answer.update(cudnn=dotted(cudnn), cudnn_path=loaded("libcudnn.so"))
    return answer


def site_packages() -> tuple[Path, list[str]]:
    """Return the environment's folder, and where the big packages in it really lie."""
    site = next((Path(entry) for entry in sys.path if entry.endswith("site-packages")), Path("/nonexistent"))
    places = [Path(sys.prefix), *(site / name for name in ("nvidia", "torch"))]
    return site, sorted({os.path.realpath(str(place)) for place in places if place.exists()})


def distributions(site: Path) -> dict[str, str]:
    """{canonical name: version} of what is wholly there."""
    versions = {}
    for folder in site.glob("*.dist-info"):
        name, _, version = folder.name[: -len(".dist-info")].rpartition("-")
        if (folder / "RECORD").is_file():
            versions[re.sub(r"[-_.]+", "-", name).lower()] = version
    return versions


def shadowing(own_places: list[str]) -> dict[str, list[str]]:
    """{folder of LD_LIBRARY_PATH here or in /etc/environment: libraries there that torch brings itself}."""
    path = Path("/etc/environment")
    text = path.read_text() if path.is_file() else ""
    lines = re.findall(r"^\s*(?:export\s+)?LD_LIBRARY_PATH=(.*)$", text, re.MULTILINE)
    parts = [os.environ.get("LD_LIBRARY_PATH", ""), *(line.strip().strip("\"'") for line in lines)]
    libraries = {}
    for folder in sorted({entry for part in parts for entry in part.split(":") if entry.startswith("/")}):
        names = {path.name.partition(".so")[0] for path in Path(folder).glob("lib*.so*")} & {"libnccl", "libcudnn"}
        real = os.path.realpath(folder) + "/"
        if names and not any(real.startswith(place + "/") for place in own_places):
            libraries[folder] = sorted(names)
    return libraries


def stamp(site: Path) -> str:
    """Return a digest that changes with every package, with the loader's cache and with the driver."""
    names = ["/etc/ld.so.cache", "/etc/ld.so.preload", "/proc/driver/nvidia/version", sys.executable, str(site)]
    names += sorted(str(folder / "RECORD") for folder in site.glob("*.dist-info"))
    digest = hashlib.sha256(os.environ.get("LD_LIBRARY_PATH", "").encode())
    for name in names:
        try:
            state = Path(name).stat()
            digest.update(("%s %d %d %d\n" % (name, state.st_size, state.st_ino, state.st_mtime_ns)).encode())
        except OSError:
            digest.update((name + " absent\n").encode())
    driver = Path("/proc/driver/nvidia/version")
    digest.update(driver.read_bytes() if driver.exists() else b"")
    return digest.hexdigest()


def imported(name: str, signature: str) -> dict[str, str]:
    """Return what the package says, or said the last time if nothing has changed since."""
    cache = CACHE / (name + "_import.json")
    try:
        cached = json.loads(cache.read_text())
        if cached["signature"] == signature:
            answer: dict[str, str] = cached["answer"]
            return answer
    except (OSError, ValueError, KeyError, TypeError):
        pass
    module = importlib.import_module(name)
    answer = look_torch(module) if name == "torch" else {"version": module.__version__}
    try:
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        staged = cache.with_name(cache.name + ".partial")
        staged.write_text(json.dumps({"signature": signature, "answer": answer}) + "\n")
        staged.replace(cache)
    except OSError:  # whose host is full, or not ours to write on, is asked again the next time
        pass
    return answer


def main() -> None:
    """One line, after whatever the package prints itself."""
    site, own_places = site_packages()
    python = "%d.%d.%d" % sys.version_info[:3]
    answer: dict[str, Any] = {"python": python, "own": own_places, "shadowing": shadowing(own_places)}
    answer["distributions"] = distributions(site)
    try:
        answer.update(imported(sys.argv[1], stamp(site)))
    except Exception as error:  # a package may raise anything while it is imported
        answer["error"] = "%s: %s" % (type(error).__name__, error)
    print("NODECTL", json.dumps(answer))


if __name__ == "__main__":
    main()
