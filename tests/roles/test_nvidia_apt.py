"""Reading keys, sources and apt's words: the pure parts behind the NVIDIA roles."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.nodectl.fleet.plugins.module_utils import openpgp
from ansible_collections.nodectl.fleet.plugins.module_utils import wanted_packages as wanting
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import run, sources

PUBLIC = sorted(Path("/usr/share/keyrings").glob("debian-archive-*.gpg"))


@pytest.mark.skipif(not PUBLIC, reason="no Debian keyrings here")
def test_fingerprints_are_those_that_gpg_tells() -> None:
    listing = subprocess.run(
        ["gpg", "--show-keys", "--with-colons", *PUBLIC], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    told, is_primary = set(), False
    for line in listing:
        if line.startswith(("pub:", "sub:")):
            is_primary = line.startswith("pub:")
        elif line.startswith("fpr:") and is_primary:
            told.add(line.split(":")[9])
    assert {name for path in PUBLIC for name, _ in openpgp.keys(path.read_bytes())} == told


@pytest.mark.skipif(not PUBLIC, reason="no Debian keyrings here")
def test_armour_comes_off_and_a_changed_one_is_noticed() -> None:
    raw = PUBLIC[0].read_bytes()
    armoured = subprocess.run(["gpg", "--enarmor"], input=raw, capture_output=True, check=True).stdout
    armoured = armoured.replace(b"PGP ARMORED FILE", b"PGP PUBLIC KEY BLOCK")
    assert openpgp.dearmor(armoured) == raw
    at = len(armoured) // 2
    other = b"A" if armoured[at : at + 1] != b"A" else b"B"
    with pytest.raises(openpgp.BadKeyError, match="checksum does not fit"):
        openpgp.dearmor(armoured[:at] + other + armoured[at + 1 :])


@pytest.mark.skipif(not PUBLIC, reason="no Debian keyrings here")
def test_a_cut_key_is_no_key() -> None:
    with pytest.raises(openpgp.BadKeyError, match="cut"):
        openpgp.keys(PUBLIC[0].read_bytes()[:-7])
    with pytest.raises(openpgp.BadKeyError, match="no OpenPGP packet"):
        openpgp.keys(b"<html>not found</html>")


def test_sources_of_both_forms_are_read(tmp_path: Path) -> None:
    parts = tmp_path / "etc/apt/sources.list.d"
    parts.mkdir(parents=True)
    (parts / "a.list").write_text(
        "# deb http://commented.example/ /\n"
        "deb [arch=amd64 signed-by=/k.gpg] https://one.example/compute/cuda/repos/ubuntu2204/x86_64/ /\n"
        "deb-src http://src.example/ main x\n"
    )
    (parts / "b.sources").write_text(
        "Types: deb\nURIs: http://two.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.example/\nSuites: /\n\n"
        "Types: deb\nURIs: http://three.example/\nSuites: /\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n"
    )
    (parts / "c.list.disabled").write_text("deb http://disabled.example/ /\n")
    found = [(each["file"], each["uri"], each["suite"], each["signed_by"]) for each in sources.read(str(tmp_path))]
    place = "/etc/apt/sources.list.d"
    assert found == [
        (f"{place}/a.list", "https://one.example/compute/cuda/repos/ubuntu2204/x86_64/", "/", "/k.gpg"),
        (f"{place}/b.sources", "http://two.example/debian", "bookworm", ""),
        (f"{place}/b.sources", "http://two.example/debian", "bookworm-updates", ""),
        (f"{place}/b.sources", "http://three.example/", "/", "(inline)"),
    ]


@pytest.mark.parametrize(
    ("wanted", "offered", "version"),
    [
        ("2.12.7-1+cuda11.6", ["2.14.3-1+cuda11.7", "2.12.12-1+cuda11.6", "2.12.10-1+cuda11.6"], "2.12.10-1+cuda11.6"),
        ("2.13.1-1+cuda11.6", ["2.12.12-1+cuda11.6", "2.12.10-1+cuda11.6"], "2.12.12-1+cuda11.6"),
        ("2.12.7-1+cuda11.6", ["2.12.7-1+cuda11.5"], None),
    ],
)
def test_the_nearest_is_of_the_same_cuda(wanted: str, offered: list[str], version: str | None) -> None:
    assert wanting.nearest(wanted, offered) == version


def test_only_what_was_asked_for_may_happen() -> None:
    steps = run.parse_simulation("Inst own (1 X)\nInst cuda-drivers (2 X)\nRemv old [1]\nInst held [1] (2 X)\n")
    never: Any = {"cuda-drivers"}
    said = wanting.objections(steps, {"own"}, [], lambda name, _: name not in never, {"held"})
    assert said == [
        "it would bring cuda-drivers 2",
        "it would remove old 1",
        "it would change held, which is held at 1",
    ]
    assert not wanting.objections(steps, {"own", "cuda-drivers", "held"}, ["old"], lambda name, _: False, set())
