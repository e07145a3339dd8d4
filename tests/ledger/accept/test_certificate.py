"""A certificate holds as it was written, and not with one byte changed; ssh-keygen signs and checks it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.ledger.accept import store
from nodectl.ledger.accept.certificate import NAME, ChangedError, certificate, check, sign
from nodectl.model.acceptance import HostAcceptance, NodeVerdict, Part, PartKind, Seen
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from tests.conftest import Cli
from tests.ledger.accept.made import acceptance, done

_REASON = Seen(
    "health", Finding("node01", "gpus", Status.FAILED, "GPU 3", "drain", "8", "7\x1b[2J\nforged: line", "reset")
)
_HOST = HostAcceptance(
    "node01",
    NodeVerdict.REJECTED,
    {"health": Status.FAILED},
    "health",
    (_REASON,),
    (Part(PartKind.GPU, "GPU-1", "node01", "H100", "GPU 3", "S1"),),
)
_WRITTEN = 1_795_000_200.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, its allowed signers, and a signed certificate beside its document."""
    path = tmp_path_factory.mktemp("signed")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path / "key"), "-C", "x"], check=True)
    (path / "signers").write_text("me@example.org " + (path / "key.pub").read_text())
    store.save(
        replace(acceptance(done("health")), hosts=(_HOST,), ended=1_795_000_100.0, nonce="n-1234567", asked="quick"),
        path,
    )
    text = certificate(store.read(path / store.DOCUMENT), (path / store.DOCUMENT).read_bytes(), _WRITTEN)
    (path / NAME).write_text(sign(text, path / "key"))
    (path / "unsigned").write_text(text)
    return path


def test_it_says_who_signed_and_what_was_found(folder: Path) -> None:
    checked = check(folder / NAME, folder / "signers", folder / store.DOCUMENT)
    assert "me@example.org" in checked.signer
    assert "node01: rejected, not asked again after health" in checked.text
    assert "found: 7\\x1b[2J\\nforged: line" in checked.text
    assert "part: gpu, GPU 3, H100, GPU-1, serial S1" in checked.text
    assert "SHA256:" in check(folder / NAME, None, None).signer


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        (["--signers", "signers"], 0, "signed by me@example.org"),
        (["--signers", "signers", "--nonce", "n-1234567"], 0, "as it was written on 2026-11-18T11:10:00Z"),
        (["--signers", "signers", "--nonce", "n-1234568"], 1, "its nonce is n-1234567, not the one"),
        ([], 3, "signed by an unknown key, "),
        (["--signers", "others"], 1, "is not among"),
    ],
)
def test_only_who_is_known_vouches(folder: Path, nodectl: Cli, more: list[str], status: int, words: str) -> None:
    (folder / "others").write_text("")
    paths = [str(folder / word) if word in ("signers", "others") else word for word in more]
    done = nodectl("accept", "--verify", str(folder / NAME), *paths, check=False)
    assert done.returncode == status and words in done.stdout + done.stderr, done.stdout + done.stderr


@given(data=st.data())
def test_one_byte_changed_is_refused(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = (folder / NAME).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    changed = tmp_path_factory.getbasetemp() / "changed"
    changed.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
    with pytest.raises(ChangedError):
        check(changed, None, None)


@pytest.mark.parametrize("cut", [0, 1, 200, -1, -40])
def test_cut_or_longer_it_is_refused(folder: Path, tmp_path: Path, cut: int) -> None:
    whole = (folder / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[:cut])
    with pytest.raises(ChangedError):
        check(tmp_path / NAME, None, None)
    (tmp_path / NAME).write_bytes(whole + b"node02: accepted\n")
    with pytest.raises(ChangedError):
        check(tmp_path / NAME, None, None)


def test_a_forged_text_with_a_digest_of_its_own_is_not_signed(folder: Path, tmp_path: Path) -> None:
    other = store.read(folder / store.DOCUMENT)
    text = certificate(other, b"another document", _WRITTEN)
    signature = (folder / NAME).read_text().partition("-----BEGIN")[2]
    (tmp_path / NAME).write_text(f"{text}-----BEGIN{signature}")
    with pytest.raises(ChangedError, match="signature does not hold"):
        check(tmp_path / NAME, None, None)
