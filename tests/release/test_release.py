"""What `make dist` publishes: what is in it, its versions, and that it runs with each Python that is promised."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts.dist import ROOT, digest, sbom, semantic, version_of
from tests.pythons import pythons_of
from tests.release.conftest import Built, installed

# the first of all also fetches what nodectl depends on
pytestmark = pytest.mark.timeout(900)

FLEET = "ansible_collections/nodectl/fleet"
_LARGEST = 800_000  # bytes; the report's script is the largest of what is there

OLDEST = "3.11"
PYTHONS = (OLDEST, "3.12", "3.13", "3.14", "3.15")
# command → what it prints
COMMANDS: dict[tuple[str, ...], str] = {
    ("nodectl", "--version"): "nodectl ",
    ("nodectl", "--help"): "provision",
    ("nodectl", "profile", "list"): "article-20g",
    ("nodectl", "lab", "--help"): "up",
    ("nodectl", "provision", "--help"): "--check",
    ("ansible-doc", "--type", "module", "nodectl.fleet.kernel_settings"): "nodectl.fleet.kernel_settings",
}
# whatever Python starts there notes which files of the checkout it opens
_WATCH = """
import os, sys
def note(event, arguments, beside=({beside!r}), log={log!r}):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith({root!r} + "/"):
        if not str(arguments[0]).startswith(beside):
            os.write(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), (str(arguments[0]) + "\\n").encode())
sys.addaudithook(note)
"""


@pytest.fixture
def names(built: Built) -> list[str]:
    """The files of the wheel."""
    with zipfile.ZipFile(built.wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_what_runs_and_nothing_else(built: Built, names: list[str]) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not tracked:
        pytest.skip("not a clone: what should be in the wheel is known by git")
    collection = ("meta/", "playbooks/", "plugins/", "roles/")
    wanted = {name for name in tracked.splitlines() if name.startswith("nodectl/") and (ROOT / name).is_file()}
    wanted |= {f"{FLEET}/{name}" for name in tracked.splitlines() if name.startswith(collection)}
    inside = {name for name in names if ".dist-info/" not in name}
    assert wanted - inside == set()
    assert {name for name in inside - wanted if not _is_untracked(name)} == {"nodectl/_version.py"}
    assert not [name for name in names if name.endswith((".pyc", ".pyo")) or name.startswith("tests/")]
    with zipfile.ZipFile(built.wheel) as archive:
        assert [entry.filename for entry in archive.infolist() if entry.file_size > _LARGEST] == []


def _is_untracked(name: str) -> bool:
    """New in this checkout, and not ignored: the next commit will have it."""
    path = name.removeprefix(f"{FLEET}/")
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 1


def test_the_sdist_has_all_that_the_wheel_has_and_no_more_folders(built: Built, names: list[str]) -> None:
    with tarfile.open(built.sdist) as archive:
        files = {member.name for member in archive if member.isfile()}
        links = {member.name: member.linkname for member in archive if member.issym()}
    ends = {name: posixpath.join(posixpath.dirname(name), target) for name, target in links.items()}
    files |= {name for name, target in ends.items() if posixpath.normpath(target) in files}
    inside = {name.partition("/")[2] for name in files}
    of_packages = [name for name in names if ".dist-info/" not in name and ".data/" not in name]
    assert {name.removeprefix(f"{FLEET}/") for name in of_packages} <= inside
    assert {name.split("/")[0] for name in inside if "/" in name} == {
        "meta",
        "nodectl",
        "playbooks",
        "plugins",
        "roles",
        "LICENSES",
    }


@pytest.mark.parametrize(
    ("python", "collection"),
    [
        ("1.2.3", "1.2.3"),
        ("1.2", "1.2.0"),
        ("1.2.0rc1", "1.2.0-rc1"),
        ("1.2.3.dev4+g12ab.d20261124", "1.2.3-dev4+g12ab.d20261124"),
        ("1.2.0rc1.dev3+g12ab", "1.2.0-rc1.dev3+g12ab"),
        ("1.2.3.post1", "1.2.3-post1"),
    ],
)
def test_the_collection_has_that_version_as_collections_have_it(python: str, collection: str) -> None:
    assert semantic(python) == collection


def test_a_checkout_that_nothing_was_built_of_has_a_version(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "nodectl", tmp_path / "nodectl", ignore=shutil.ignore_patterns("_version.py", "data"))
    # -I -S: no package of any environment is found
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import nodectl; print(nodectl.__version__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "0.0.0\n"


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_wheel_and_sdist_run_with_each_python(version: str, built: Built, tmp_path: Path) -> None:
    python = next(iter(pythons_of(version)), None)
    if python is None:
        assert version != OLDEST, f"Python {OLDEST}, the oldest that nodectl promises, is not on this machine"
        pytest.skip(f"no Python {version} on this machine")
    place = installed(python, built.wheel, tmp_path)
    (site,) = place.environment.glob("lib/python3.*/site-packages")
    opened = tmp_path / "opened"
    beside = (str(tmp_path), str(ROOT / ".cache"))
    (site / "sitecustomize.py").write_text(_WATCH.format(beside=beside, log=str(opened), root=str(ROOT)))

    place.run("python", "-c", f"open({str(ROOT / 'README.md')!r})")
    assert opened.read_text() == f"{ROOT / 'README.md'}\n"

    for argv, shown in COMMANDS.items():
        assert shown in place.run(*argv), argv
    assert place.run("nodectl", "--version") == f"nodectl {version_of(built.wheel)}\n"
    recording = site / "nodectl" / "data" / "recordings" / "h100-8"
    health = json.loads(place.run("nodectl", "--output", "json", "--replay", str(recording), "health"))
    assert {found["host"] for found in health["findings"]} == {"node01"}
    assert opened.read_text().splitlines() == [str(ROOT / "README.md")]

    if version == OLDEST:
        return  # what the sdist gives is compared with the Pythons of `make test-all`
    from_source = installed(python, built.sdist, tmp_path / "sdist")
    assert from_source.files() == place.files()
    assert from_source.run("nodectl", "--version") == f"nodectl {version_of(built.wheel)}\n"


@pytest.mark.slow
def test_the_list_of_parts_has_what_is_installed(built: Built, tmp_path: Path) -> None:
    document = json.loads(sbom(tmp_path, built.wheel).read_text())
    itself = document["metadata"]["component"]
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert (itself["name"], itself["version"]) == ("nodectl", version_of(built.wheel))
    assert itself["hashes"] == [{"alg": "SHA-256", "content": digest(built.wheel)}]
    parts = {part["name"]: part for part in document["components"]}
    # what it names, and what those need
    assert {"ansible-core", "click", "paramiko", "MarkupSafe"} <= set(parts)
    assert all(part["version"] and part["purl"].startswith("pkg:pypi/") for part in parts.values())
    (needed,) = (each["dependsOn"] for each in document["dependencies"] if each["ref"] == itself["bom-ref"])
    assert parts["ansible-core"]["bom-ref"] in needed
    assert str(tmp_path) not in json.dumps(document)
