"""The harness's own parts that need nothing booted."""

from __future__ import annotations

import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from tests.booted.journal import Journal, birth
from tests.booted.kernel import load_order, uncompressed
from tests.booted.pool import stanza
from tests.booted.sources import codename, own_sources

_ELF = b"\x7fELF" + bytes(range(256)) * 40


def test_sources_of_both_forms_are_read_and_those_of_other_suites_left_out(tmp_path: Path) -> None:
    release = codename()
    (tmp_path / "sources.list").write_text(
        f"deb http://one.example {release} main\n# deb http://off.example {release} main\n"
    )
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / "a.list").write_text(f"deb https://tools.example tools-{release} main\n")
    (folder / "b.sources").write_text(
        f"Types: deb deb-src\nURIs: http://two.example\nSuites: {release} {release}-updates\n"
        "Components: main contrib\nSigned-By: /usr/share/keyrings/k.gpg\n"
        f"\nEnabled: no\nTypes: deb\nURIs: http://three.example\nSuites: {release}\nComponents: main\n"
    )
    assert own_sources(tmp_path) == [
        f"deb http://one.example {release} main",
        f"deb [signed-by=/usr/share/keyrings/k.gpg] http://two.example {release} main contrib",
        f"deb [signed-by=/usr/share/keyrings/k.gpg] http://two.example {release}-updates main contrib",
    ]
    assert own_sources(tmp_path, "later")[::2] == [
        "deb http://one.example later main",
        "deb [signed-by=/usr/share/keyrings/k.gpg] http://two.example later-updates main contrib",
    ]


def test_a_machine_without_sources_of_its_release_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"no apt source of {codename()}"):
        own_sources(tmp_path)


def test_a_kernel_is_found_behind_a_mark_that_is_not_one() -> None:
    image = b"boot code \xfd7zXZ\x00 in its text" + lzma.compress(_ELF) + b"tail"
    assert uncompressed(image) == _ELF == uncompressed(_ELF)
    with pytest.raises(RuntimeError, match="neither xz nor gzip"):
        uncompressed(b"MZ" + b"\0" * 100)


def test_modules_come_after_what_they_need_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "lib/modules/6.0"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text(
        "fs/ext4.ko: fs/jbd2.ko lib/crc16.ko\nfs/jbd2.ko: lib/crc16.ko\nlib/crc16.ko:\n"
        "net/virtio-net.ko: lib/crc16.ko\n"
    )
    order = load_order(tmp_path, "6.0", ("virtio_net", "built_in", "ext4"))
    assert [path.name for path in order] == ["crc16.ko", "virtio-net.ko", "jbd2.ko", "ext4.ko"]


def test_a_package_is_listed_with_what_it_must_be(tmp_path: Path) -> None:
    tree = tmp_path / "tree" / "DEBIAN"
    tree.mkdir(parents=True)
    (tree / "control").write_text(
        "Package: thing\nVersion: 1.2-3\nArchitecture: all\nMaintainer: A <a@b.example>\nDescription: a thing\n"
    )
    package = tmp_path / "thing_1.2-3_all.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", str(tree.parent), str(package)]
    subprocess.run(build, check=True, capture_output=True)
    digest = subprocess.run(["sha256sum", str(package)], capture_output=True, text=True, check=True).stdout.split()[0]
    lines = stanza(package).splitlines()
    assert "Package: thing" in lines and "Version: 1.2-3" in lines
    assert lines[-3:] == ["Filename: ./thing_1.2-3_all.deb", f"Size: {package.stat().st_size}", f"SHA256: {digest}"]


def test_a_journal_ends_its_own_processes_and_no_others_of_the_same_number(tmp_path: Path) -> None:
    sleeps = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    home = tmp_path / "session"
    home.mkdir()
    journal = Journal(home)
    journal.note_process(sleeps[0].pid)
    journal.note("process", str(sleeps[1].pid), birth(sleeps[1].pid) - 1)
    with (home / "journal.jsonl").open("a") as stream:
        stream.write('["process", "1')  # a crash in the middle of a line
    try:
        Journal(home).undo()
        assert sleeps[0].wait(timeout=5) == -9
        assert sleeps[1].poll() is None
        assert not home.exists()
    finally:
        sleeps[1].kill()
        sleeps[1].wait(timeout=5)
