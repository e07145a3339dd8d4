"""Builds and signs the repository: dpkg-deb and gpg with a throwaway key, no root needed."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import yaml

from tests.apt_repo.payload import payload

DATA = Path(__file__).resolve().parent.parent / "data" / "nvidia_packages.yml"
# of the newest only what was seen there, so each row names them
NEWEST = ("ubuntu2604", "debian13")
DISTRIBUTIONS = ("ubuntu2004", "ubuntu2204", "ubuntu2404", "debian12", *NEWEST)
# a distribution's own archive: its folder, its rows, and its name for itself
ARCHIVES = {"archive": ("archive", "Ubuntu"), "archive_debian": ("archive-debian", "Debian")}
NVIDIA = "Origin: NVIDIA\nLabel: NVIDIA CUDA\n"


@dataclass(frozen=True, slots=True)
class Repository:
    """A built repository: where it lies, and the key that signed it."""

    base_url_path: Path
    key_file: Path
    fingerprint: str
    sha256: str

    @property
    def url(self) -> str:
        """The base address, for apt on a machine that sees the folder under the same path."""
        return f"file://{self.base_url_path}"


@dataclass(frozen=True, slots=True)
class _Deb:
    """A built package file and its index entry, which still lacks the file name."""

    path: Path
    stanza: str


def build(folder: Path, distributions: Iterable[str] = DISTRIBUTIONS, *, archive: bool = False) -> Repository:
    """`<folder>/<distribution>/x86_64/`, each signed; with `archive`, also the distributions' own."""
    data = yaml.safe_load(DATA.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # apt reads it as a user of its own
    with _Signer(folder) as signer:
        built: dict[tuple[str, str, str], _Deb] = {}
        parts = [(name, NVIDIA, data["packages"]) for name in distributions]
        for key, (name, origin) in ARCHIVES.items() if archive else ():
            parts.append((name, f"Origin: {origin}\nLabel: {origin}\n", data[key]))
        for name, origin, rows in parts:
            path, wanted = folder / name / "x86_64", list(_wanted(rows, name))
            _fill(path, [_built(built, signer.work, row, version) for row, version in wanted])
            signer.sign(path, origin)
        return Repository(folder, signer.key_file, signer.fingerprint, _sha256(signer.key_file.read_bytes()))


def _wanted(rows: Iterable[Mapping[str, Any]], distribution: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    anywhere = () if distribution in NEWEST else (distribution,)
    for row in rows:
        versions = row["versions"]
        if not isinstance(versions, Mapping):
            versions = dict.fromkeys(row.get("distributions", anywhere), versions)
        for version in versions.get(distribution, ()):
            yield row, version


def _built(known: dict[tuple[str, str, str], _Deb], work: Path, row: Mapping[str, Any], version: str) -> _Deb:
    architecture = row.get("arch") or "amd64"
    # the same name and version may depend on other packages elsewhere
    key = row["name"], version, ":".join((architecture, *row.get("depends", ())))
    if key not in known:
        known[key] = _pack(work, row, version, architecture)
    return known[key]


def _pack(work: Path, row: Mapping[str, Any], version: str, architecture: str) -> _Deb:
    """Lay the package out in a folder and run dpkg-deb on it."""
    name = row["name"]
    work = Path(tempfile.mkdtemp(dir=work))
    tree = work / f"{name}_{version}_{architecture}"
    content = payload(row.get("payload"), name, version)
    for path, text in content.files.items():
        _write(tree / path.lstrip("/"), text, 0o755 if path in content.programs else 0o644)
    control = _control(row, version, architecture)
    _write(tree / "DEBIAN" / "control", control, 0o644)
    for script, text in content.scripts.items():
        _write(tree / "DEBIAN" / script, text, 0o755)
    if configured := [path for path in content.files if path.startswith("/etc/")]:
        _write(tree / "DEBIAN" / "conffiles", "".join(f"{path}\n" for path in configured), 0o644)
    target = work / f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(target))
    shutil.rmtree(tree)
    body = target.read_bytes()
    return _Deb(target, f"{control}Size: {len(body)}\nSHA256: {_sha256(body)}\n")


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _control(row: Mapping[str, Any], version: str, architecture: str) -> str:
    fields = {
        "Package": row["name"],
        "Version": version,
        "Architecture": architecture,
        "Maintainer": row.get("maintainer", "cudatools <cudatools@nvidia.com>"),
        "Description": f"{row['name']} as the tests need it; holds no NVIDIA software",
    }
    for field in ("depends", "recommends", "provides", "conflicts"):
        if row.get(field):
            fields[field.capitalize()] = ", ".join(row[field]).replace("{version}", version)
    if row.get("conflicts"):
        fields["Replaces"] = fields["Conflicts"]
    return "".join(f"{field}: {value}\n" for field, value in fields.items())


def _fill(place: Path, debs: Iterable[_Deb]) -> None:
    """The packages and their index, in one flat folder as NVIDIA's."""
    place.mkdir(parents=True, exist_ok=True)
    stanzas = []
    for deb in debs:
        target = place / deb.path.name
        target.unlink(missing_ok=True)
        os.link(deb.path, target)
        stanzas.append(f"{deb.stanza}Filename: ./{target.name}\n")
    (place / "Packages").write_text("\n".join(stanzas))


class _Signer:
    """A key that lives as long as the build."""

    def __init__(self, folder: Path) -> None:
        self.key_file = folder / "key.pub"
        # beside the result, so that packages are linked there rather than copied; short, since gpg's socket lies in it
        self.work = Path(tempfile.mkdtemp(prefix=".w", dir=folder))
        self._home = Path(tempfile.mkdtemp(prefix="gpg"))
        self.fingerprint = ""

    def __enter__(self) -> "_Signer":
        self._gpg(
            "--passphrase", "", "--quick-gen-key", "nodectl tests <tests@example.invalid>", "rsa2048", "sign", "never"
        )
        listing = self._gpg("--with-colons", "--list-keys")
        self.fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
        self.key_file.write_text(self._gpg("--armor", "--export"))
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], capture_output=True, check=False)
        shutil.rmtree(self._home, ignore_errors=True)
        shutil.rmtree(self.work)

    def sign(self, place: Path, origin: str) -> None:
        """Release, InRelease and the public key under the name that NVIDIA's has: the end of its fingerprint.

        The older keys' in small letters.
        """
        index = (place / "Packages").read_bytes()
        release = (
            f"{origin}Architecture: all amd64 arm64\nDate: {formatdate(usegmt=True)}\n"
            f"SHA256:\n {_sha256(index)} {len(index)} Packages\n"
        )
        (place / "Release").write_text(release)
        self._gpg("--yes", "--clearsign", "--output", str(place / "InRelease"), str(place / "Release"))
        self._gpg("--yes", "--armor", "--detach-sign", "--output", str(place / "Release.gpg"), str(place / "Release"))
        newest = place.parent.name in NEWEST
        key = self.fingerprint[-8:] if newest else self.fingerprint[-8:].lower()
        shutil.copyfile(self.key_file, place / f"{key}.pub")

    def _gpg(self, *args: str) -> str:
        return _run("gpg", "--homedir", str(self._home), "--batch", "--quiet", "--digest-algo", "SHA512", *args)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
