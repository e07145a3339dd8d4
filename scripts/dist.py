"""What is published, made again in a folder: wheel, sdist, the collection's tarball, what is in it (SBOM), digests.

usage: scripts/dist.py [--out dist] [collection]      collection: it alone, with the version of the installed nodectl
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from nodectl import __version__

ROOT = Path(__file__).resolve().parent.parent
# of the collection's members; hatchling has the same for those of the wheel
_DATE = int(os.environ.get("SOURCE_DATE_EPOCH", "1580601600"))
_CYCLONEDX = "cyclonedx-bom>=7,<8"


def main() -> None:
    """Write all of it, or the collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("what", nargs="?", choices=["collection"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what:
        print(collection(options.out, __version__))
        return
    for old in options.out.glob("nodectl-*"):
        old.unlink()
    wheel, sdist = packages(options.out)
    made = [wheel, sdist, collection(options.out, version_of(wheel)), sbom(options.out, wheel)]
    digests = "".join(f"{digest(path)}  {path.name}\n" for path in made)
    (options.out / "SHA256SUMS").write_text(digests, encoding="utf-8")
    print(digests, end="")


def packages(out: Path, version: str = "") -> tuple[Path, Path]:
    """Build wheel and sdist, of git's version or this one; the wheel is made of what the sdist holds.

    The build writes nodectl/_version.py of the checkout, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = {"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_NODECTL": version} if version else {}
        uv("build", "--quiet", "--out-dir", folder, str(ROOT), env=env)
        (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
        return Path(shutil.move(wheel, out / wheel.name)), Path(shutil.move(sdist, out / sdist.name))


def version_of(wheel: Path) -> str:
    """Return the version in a wheel's name."""
    return wheel.name.split("-")[1]


def collection(out: Path, version: str) -> Path:
    """Build the checkout's collection, of that version instead of galaxy.yml's, and return its path."""
    with tempfile.TemporaryDirectory() as folder:
        build = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection", "build", "--output-path", folder]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (built,) = Path(folder).iterdir()
        path = out / f"nodectl-fleet-{semantic(version)}.tar.gz"
        path.write_bytes(_with_version(built, semantic(version)))
    return path


def semantic(version: str) -> str:
    """Return a version of Python's kind as collections have it: 1.2.0rc1.dev3+g12ab → 1.2.0-rc1.dev3+g12ab."""
    read = Version(version)
    major, minor, micro = (*read.release, 0, 0)[:3]
    before = [f"{kind}{number}" for kind, number in [read.pre or ("", "")] if kind]
    before += [f"{kind}{number}" for kind, number in (("post", read.post), ("dev", read.dev)) if number is not None]
    return (
        f"{major}.{minor}.{micro}"
        + ("-" + ".".join(before) if before else "")
        + (f"+{read.local}" if read.local else "")
    )


def sbom(out: Path, wheel: Path) -> Path:
    """CycloneDX 1.6: what an environment holds into which the wheel was installed."""
    path = out / f"nodectl-{version_of(wheel)}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        uv("venv", "--quiet", "--python", sys.executable, folder)
        uv("pip", "install", "--quiet", "--python", python, str(wheel))
        about = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application")
        form = ("--output-format", "JSON", "--spec-version", "1.6", "--output-reproducible")
        program = ("tool", "run", "--quiet", "--from", _CYCLONEDX, "cyclonedx-py", "environment")
        uv(*program, *about, *form, "--output-file", str(path), python)
    document = json.loads(path.read_text(encoding="utf-8"))
    itself = document["metadata"]["component"]
    itself |= {"version": version_of(wheel), "hashes": [{"alg": "SHA-256", "content": digest(wheel)}]}
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path


def uv(*argv: str, env: Mapping[str, str] | None = None) -> None:
    """Run uv, which finds packages where pip's settings say; CalledProcessError with what it said."""
    settings = '. scripts/pip_settings.sh && pip_settings "$0" && exec "$@"'
    program = Path(sys.executable).with_name("uv")
    whole = ["bash", "-c", settings, sys.executable, str(program), *argv]
    given = {**os.environ, **(env or {})}
    done = subprocess.run(whole, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, ["uv", *argv], done.stdout, done.stderr)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _with_version(artifact: Path, version: str) -> bytes:
    """Return the archive with that version in its MANIFEST.json, which no digest covers, and members of one date."""
    packed = io.BytesIO()
    with tarfile.open(artifact) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in old:
            file = old.extractfile(member)
            data = file.read() if file else b""
            if member.name == "MANIFEST.json":
                manifest = json.loads(data)
                manifest["collection_info"]["version"] = version
                data = json.dumps(manifest, indent=1).encode()
            member.size, member.mtime = len(data), _DATE
            new.addfile(member, io.BytesIO(data) if file else None)
    return gzip.compress(packed.getvalue(), mtime=_DATE)


if __name__ == "__main__":
    main()
