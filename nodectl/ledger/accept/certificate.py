"""The certificate: the verdicts as a text that names the document's digest, signed by `ssh-keygen -Y` where asked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import time_text
from nodectl.errors import NodectlError, UsageError
from nodectl.ledger.accept.judge import is_shared
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Seen, StepState
from nodectl.model.status import Status

NAME = "certificate.txt"
_NAMESPACE = "nodectl-accept"
_TITLE = "nodectl acceptance, version 1"
_DOCUMENT, _DIGEST = "document sha256", "sha256"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_PRIVATE = b" PRIVATE KEY-----"
_COLUMNS = 70
_KEYGEN_S = 60.0
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class ChangedError(NodectlError):
    """The certificate is not what was written, or not signed by whom it should be."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Hold what is known of a certificate that is as it was written; `signer` empty: nobody has signed it.

    `is_known`: the signer is one of the allowed ones; a key alone vouches for nothing.
    """

    signer: str
    text: str
    is_known: bool = False

    def said(self, name: str) -> str:
        """Return what the lines before the verdicts say under this name; empty where there is no such line."""
        head = self.text.partition("\n\n")[0].splitlines()
        return next((line.removeprefix(name).strip() for line in head if line.startswith(f"{name} ")), "")


def certificate(acceptance: Acceptance, document: bytes, written: float) -> str:
    """Return the text, written at this time; control characters of hosts are spelled out, so no line is forged."""
    lines = [_CONTROLS.sub(lambda match: repr(match.group())[1:-1], line) for line in _lines(acceptance, written)]
    lines.append(f"{_DOCUMENT} {hashlib.sha256(document).hexdigest()}")
    body = "\n".join(lines) + "\n"
    return body + f"{_DIGEST} {hashlib.sha256(body.encode()).hexdigest()}\n"


def sign(text: str, key: Path) -> str:
    """Return the certificate with a signature by this key below it, or by the agent's where it is a public one.

    UsageError where ssh-keygen will not sign with it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_text(text, encoding="utf-8")
        done = _keygen("-Y", "sign", "-f", str(key), "-n", _NAMESPACE, str(path))
        if done.returncode:
            by_hand = f"ssh-keygen -Y sign -n {_NAMESPACE} -f KEY {NAME} && cat {NAME}.sig >> {NAME}"
            raise UsageError(
                f"the certificate could not be signed with {key}: {_said(done)}", f"sign it yourself: {by_hand}"
            )
        return text + path.with_name(f"{NAME}.sig").read_text(encoding="ascii")


def refuse_no_key(path: Path) -> None:
    """Raise UsageError where this is no key: told before hours of work, and without its passphrase."""
    done = _keygen("-l", "-f", str(path))
    # of one as PEM, ssh-keygen cannot tell without its passphrase
    if done.returncode and _PRIVATE not in path.read_bytes():
        raise UsageError(f"--sign {path}: {_said(done)}", "name a private key of yours, or its .pub in an agent")


def check(path: Path, signers: Path | None, document: Path | None) -> Checked:
    """Return what the certificate is worth; ChangedError where it, or the document beside it, is not what was written.

    With `signers` (ssh-keygen's allowed signers) it must be signed by one of them.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file", "name a certificate.txt")
    try:
        data = path.read_bytes()
        whole = data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a certificate.txt") from error
    except UnicodeDecodeError as error:
        raise _changed(path, f"it is no text: {error}") from error
    text, begin, signature = whole.partition(_BEGIN)
    _check_text(path, text)
    # the last line before the digest: others have words of hosts
    if document and text.splitlines()[-2] != f"{_DOCUMENT} {hashlib.sha256(document.read_bytes()).hexdigest()}":
        raise _changed(path, f"{document} is not the document that it speaks of")
    if not begin:
        if signers is not None:
            raise _changed(path, "nobody has signed it")
        return Checked("", text)
    return Checked(_signer(path, text, begin + signature, signers), text, signers is not None)


def _check_text(path: Path, text: str) -> None:
    *body, last = text.splitlines(keepends=True) or [""]
    digest = hashlib.sha256("".join(body).encode()).hexdigest()
    if not text.startswith(f"{_TITLE}\n") or last != f"{_DIGEST} {digest}\n":
        raise _changed(path, "its text and its digest do not agree")


def _signer(path: Path, text: str, signature: str, signers: Path | None) -> str:
    """Return who signed: the name among the allowed signers, else the key's fingerprint."""
    if signature != _armoured(signature):
        raise _changed(path, "its signature is not as ssh-keygen writes it")
    with tempfile.TemporaryDirectory() as folder:
        sig = Path(folder) / "sig"
        sig.write_text(signature, encoding="ascii")
        if signers is None:
            done = _keygen("-Y", "check-novalidate", "-n", _NAMESPACE, "-s", str(sig), stdin=text)
        else:
            principals = _keygen("-Y", "find-principals", "-f", str(signers), "-s", str(sig))
            names = principals.stdout.splitlines()
            if principals.returncode or not names:
                raise _changed(path, f"its signer is not among {signers}")
            verify = ("-Y", "verify", "-f", str(signers), "-I", names[0], "-n", _NAMESPACE, "-s", str(sig))
            done = _keygen(*verify, stdin=text)
    if done.returncode:
        raise _changed(path, f"its signature does not hold: {_said(done)}")
    return _said(done).removeprefix(f'Good "{_NAMESPACE}" signature ').removeprefix("for ").removeprefix("with ")


def _armoured(signature: str) -> str:
    """Return the signature as ssh-keygen writes it: base64 has other spellings of the same bytes."""
    lines = signature.splitlines()
    try:
        data = base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError):
        return ""
    text = base64.b64encode(data).decode()
    broken = [text[first : first + _COLUMNS] for first in range(0, len(text), _COLUMNS)]
    return "\n".join([_BEGIN, *broken, _END]) + "\n"


def _keygen(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["ssh-keygen", *words],
            # newlines as they are: they are signed
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=_KEYGEN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"ssh-keygen: no answer in {_KEYGEN_S:g} s", "give it the passphrase sooner") from error
    except OSError as error:
        raise UsageError(f"ssh-keygen: {error.strerror or error}", "install OpenSSH's client") from error


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).split())


def _changed(path: Path, why: str) -> ChangedError:
    return ChangedError(f"{path}: {why}", "ask for it again from where it was written; do not rely on this one")


def _lines(acceptance: Acceptance, written: float) -> Iterator[str]:
    whole = "" if acceptance.ended is not None else " (NOT complete: steps are waiting)"
    yield _TITLE
    yield f"id        {acceptance.id}{whole}"
    yield f"level     {acceptance.level}"
    yield f"time      {_time(acceptance.began)} to {_time(acceptance.ended)}"
    yield f"written   {_time(written)}"
    yield f"nonce     {acceptance.nonce or '-'}"
    yield f"asked     {acceptance.asked or '-'}"
    yield f"figures   {acceptance.nature}"
    yield f"nodectl   {acceptance.nodectl}"
    for verdict in NodeVerdict:
        names = [host.host for host in acceptance.hosts if host.verdict is verdict]
        if names:
            yield f"{verdict}: {counted(len(names), 'host')}, {fold(names)}"
    yield ""
    yield "steps"
    for step in acceptance.steps:
        hosts = counted(len(step.hosts), "host")
        how = f"{hosts}, {time_text(step.took_s)}" if step.state is StepState.DONE and step.took_s is not None else ""
        yield f"  {step.name}: {step.about}: {how or f'{step.state}: {step.why}'.rstrip(': ')}"
    for host in sorted(acceptance.hosts, key=lambda host: host.verdict.status.rank):
        yield ""
        yield from _host_lines(host)
    yield ""


def _host_lines(host: HostAcceptance) -> Iterator[str]:
    yield f"{host.host}: {host.verdict}" + (f", not asked again after {host.left_after}" if host.left_after else "")
    for step, status in host.steps.items():
        if status is not Status.OK:
            yield f"  {step}: {status}"
    for reason in host.reasons:
        yield from _reason_lines(reason)
    for part in host.parts:
        fields = (f"{part.kind}", part.place, part.model, part.id, f"serial {part.serial}" if part.serial else "")
        yield "  part: " + ", ".join(filter(None, fields))


def _reason_lines(reason: Seen) -> Iterator[str]:
    finding = reason.finding
    subject = f" {finding.subject}" if finding.subject else ""
    between = f" (with {fold(finding.hosts)})" if is_shared(finding) and len(finding.hosts) > 1 else ""
    yield f"  {finding.status}: {reason.step}, {finding.check}{subject}{between}"
    for name, text in (
        ("expected", finding.expected),
        ("found", finding.actual),
        ("seen", finding.evidence),
        ("action", "" if finding.action == "none" else finding.action),
        ("do", finding.remedy),
    ):
        if text:
            yield f"    {name}: {text}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
