"""Builds and signs the repository: rpmbuild, rpmsign and createrepo_c with a throwaway key, no root needed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parent.parent / "data" / "nvidia_rpms.yml"
PROGRAMS = ("dnf", "rpm", "rpmbuild", "rpmsign", "createrepo_c", "modifyrepo_c", "gpg")
DIST = ".el9"
NVIDIA, RED_HAT = "cudatools <cudatools@nvidia.com>", "Red Hat, Inc."


@dataclass(frozen=True, slots=True)
class Repository:
    """Folders of NVIDIA's part (below it rhel9 and rhel10) and of the system's, and the key that signed NVIDIA's."""

    folder: Path
    system: Path
    key_file: Path
    fingerprint: str

    @property
    def url(self) -> str:
        """The base address, for dnf on a machine that sees the folder under the same path."""
        return f"file://{self.folder}"


@dataclass(frozen=True, slots=True)
class _Rpm:
    name: str
    version: str
    maker: str = NVIDIA
    epoch: int = 0
    arch: str = "x86_64"
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    stream: str = ""

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.epoch}:{self.version}.{self.arch}"

    def text(self) -> str:
        """A spec of its own."""
        upstream, _, release = self.version.rpartition("-")
        lines = [f"Name: {self.name}", f"Version: {upstream}", f"Release: {release}", "Summary: x", "License: x"]
        lines += [f"Epoch: {self.epoch}"] if self.epoch else []
        lines += [f"Vendor: {self.maker}" if self.maker != NVIDIA else f"Packager: {self.maker}"]
        lines += ["BuildArch: noarch"] if self.arch == "noarch" else []
        # dnf takes only labelled packages for a stream's
        lines += [f"ModularityLabel: nvidia-driver:{self.stream}:1:00000000"] if self.stream else []
        for field in ("requires", "conflicts", "provides"):
            lines += [f"{field.capitalize()}: {text}" for text in getattr(self, field)]
        body = "%description\nAs the tests need it; holds no file.\n%files\n"
        return "\n".join(["%define debug_package %{nil}", "AutoReqProv: no", *lines]) + "\n" + body


def build(folder: Path) -> Repository:
    """`nvidia/rhel9/x86_64` with its module streams, signed, `rhel10` without any, and `system` beside them."""
    data = yaml.safe_load(DATA.read_text())
    home = Path(tempfile.mkdtemp(prefix="gpg"))  # short, since gpg's socket lies in it
    try:
        key_file, fingerprint = _key(home, folder)
        nvidia, system = folder / "nvidia" / "rhel9" / "x86_64", folder / "system"
        drivers = list(_drivers(data["driver"]))
        _fill(nvidia, [*drivers, *_rows(data["packages"], NVIDIA)], home, fingerprint)
        _streams(nvidia, drivers)
        shutil.copyfile(key_file, nvidia / f"{fingerprint[-8:]}.pub")
        plain = [replace(rpm, stream="") for rpm in _drivers(data["driver"], ".el10")]
        _fill(folder / "nvidia" / "rhel10" / "x86_64", plain, home, fingerprint)
        _fill(system, list(_rows(data["system"], RED_HAT)), home, fingerprint)
        return Repository(folder / "nvidia", system, key_file, fingerprint)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


def _rows(rows: list[dict[str, Any]], maker: str) -> Iterator[_Rpm]:
    for row in rows:
        for version in row["versions"]:
            epoch = row.get("epoch", 0)
            whole = f"{epoch}:{version}" if epoch else version
            requires = tuple(text.replace("{version}", whole) for text in row.get("requires", ()))
            # by this dnf keeps several side by side
            provides = ("installonlypkg(kernel)",) if row["name"].startswith("kernel") else ()
            conflicts = tuple(row.get("conflicts", ()))
            yield _Rpm(row["name"], version, maker, epoch, "x86_64", requires, conflicts, provides)


def _drivers(data: dict[str, Any], dist: str = DIST) -> Iterator[_Rpm]:
    """Each branch in each flavour: a stream of its own; its parts need each other in just one version."""
    for branch, versions in data["branches"].items():
        for version in versions:
            for name in data["loose"]:
                yield _Rpm(name, f"{version}-1")
            for flavour, (meta, module) in data["flavours"].items():
                stream, whole = f"{branch}-{flavour}", f"3:{version}-1{dist}"
                # by whom the module is built is the stream's
                kind = "nvidia-kmod" if flavour == "dkms" else module
                parts = tuple(f"{name} = {whole}" for name in (*data["parts"], kind))
                common: dict[str, Any] = {"epoch": 3, "stream": stream}
                yield _Rpm(meta, f"{version}-1{dist}", arch="noarch", requires=parts, **common)
                built: dict[str, Any] = {"requires": ("dkms",), "provides": (f"nvidia-kmod = {whole}",)}
                yield _Rpm(module, f"{version}-1{dist}", arch="noarch", **built, **common)
                if flavour == "open":
                    for name in data["parts"]:
                        yield _Rpm(name, f"{version}-1{dist}", **common)


def _key(home: Path, folder: Path) -> tuple[Path, str]:
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet")
    name = "nodectl tests <tests@example.invalid>"
    _run(*gpg, "--passphrase", "", "--quick-gen-key", name, "rsa2048", "sign", "never")
    listing = _run(*gpg, "--with-colons", "--list-keys")
    fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
    key_file = folder / "key.pub"
    key_file.write_text(_run(*gpg, "--armor", "--export"))
    return key_file, fingerprint


def _fill(place: Path, rpms: list[_Rpm], home: Path, fingerprint: str) -> None:
    """The packages, signed, and their index."""
    place.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(prefix=".w", dir=place.parent))
    specs = []
    for number, rpm in enumerate(rpms):
        specs.append(work / f"{number}.spec")
        specs[-1].write_text(rpm.text())
    define = ("--define", f"_topdir {work}", "--define", f"_rpmdir {place}", "--define", "_build_name_fmt %%{NVRA}.rpm")
    _run("rpmbuild", "-bb", "--quiet", "--target", "x86_64", *define, *map(str, specs))
    files = sorted(map(str, place.glob("*.rpm")))
    gpg = shutil.which("gpg") or "gpg"
    keyed = ("--define", f"_gpg_name {fingerprint}", "--define", f"_gpg_path {home}", "--define", f"__gpg {gpg}")
    _run("rpmsign", "--addsign", *keyed, *files)
    shutil.rmtree(work)
    _run("createrepo_c", "--quiet", "--compatibility", str(place))


def _streams(place: Path, rpms: list[_Rpm]) -> None:
    """The streams of nvidia-driver; no stream is the default one."""
    documents = []
    for stream in sorted({rpm.stream for rpm in rpms if rpm.stream}):
        # the parts are of both flavours of a branch
        branch = [rpm for rpm in rpms if rpm.stream and rpm.stream.partition("-")[0] == stream.partition("-")[0]]
        artifacts = [rpm.nevra for rpm in branch if rpm.stream == stream or rpm.arch == "x86_64"]
        data = {
            "name": "nvidia-driver",
            "stream": stream,
            "version": 1,
            "context": "00000000",
            "arch": "x86_64",
            "summary": "x",
            "description": "x",
            "license": {"module": ["x"]},
            "dependencies": [{"buildrequires": {}, "requires": {}}],
            "profiles": {"default": {"rpms": ["nvidia-driver"]}},
            "artifacts": {"rpms": artifacts},
        }
        documents.append({"document": "modulemd", "version": 2, "data": data})
    file = place / "modules.yaml"
    file.write_text(yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False))
    _run("modifyrepo_c", "--mdtype=modules", str(file), str(place / "repodata"))
    file.unlink()


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)[:400]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout
