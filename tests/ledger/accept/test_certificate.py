"""A certificate holds as it was written, and not with one byte changed; ssh-keygen signs and checks it."""

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.errors import UsageError
from nodectl.ledger.accept import store
from nodectl.ledger.accept.certificate import NAME, ChangedError, certificate, check, refuse_no_key, sign
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


def test_it_says_when_it_was_written_and_for_whom(folder: Path) -> None:
    checked = check(folder / NAME, None, None)
    said = [checked.said(name) for name in ("written", "nonce", "asked", "verdict")]
    assert said == ["2026-11-18T11:10:00Z", "n-1234567", "quick", ""]


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


def test_unsigned_it_is_as_written_and_nobody_vouches(folder: Path) -> None:
    assert check(folder / "unsigned", None, folder / store.DOCUMENT).signer == ""
    with pytest.raises(ChangedError, match="nobody has signed"):
        check(folder / "unsigned", folder / "signers", None)


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


def test_another_document_and_another_signer_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / store.DOCUMENT).write_bytes((folder / store.DOCUMENT).read_bytes() + b" ")
    with pytest.raises(ChangedError, match="is not the document"):
        check(folder / NAME, None, tmp_path / store.DOCUMENT)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    (tmp_path / "signers").write_text("you@example.org " + (tmp_path / "other.pub").read_text())
    with pytest.raises(ChangedError, match="is not among"):
        check(folder / NAME, tmp_path / "signers", None)


def test_what_is_no_key_does_not_sign(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key\n")
    with pytest.raises(UsageError, match="could not be signed with"):
        sign("text\n", tmp_path / "key")
    with pytest.raises(UsageError, match="is not a public key file"):
        refuse_no_key(tmp_path / "key")


def test_signers_as_others_write_them(folder: Path, tmp_path: Path) -> None:
    refuse_no_key(folder / "key")
    key = (folder / "key.pub").read_text().rpartition(" ")[0]
    (tmp_path / "signers").write_text(f'"m e" {key}\n')
    assert check(folder / NAME, tmp_path / "signers", None).signer.startswith("m e ")
    (tmp_path / "signers").write_text(f"m\xf1@x {key}\n", encoding="latin-1")
    with pytest.raises(ChangedError):
        check(folder / NAME, tmp_path / "signers", None)


def test_words_of_a_host_name_no_document(folder: Path, tmp_path: Path) -> None:
    (tmp_path / store.DOCUMENT).write_text("forged")
    words = f"document sha256 {hashlib.sha256(b'forged').hexdigest()}"
    reason = replace(_REASON, finding=replace(_REASON.finding, actual=words))
    host = replace(_HOST, reasons=(reason,))
    (tmp_path / NAME).write_text(certificate(replace(acceptance(done("health")), hosts=(host,)), b"true", _WRITTEN))
    assert words in check(tmp_path / NAME, None, None).text
    with pytest.raises(ChangedError, match="is not the document"):
        check(tmp_path / NAME, None, tmp_path / store.DOCUMENT)
