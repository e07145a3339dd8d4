"""The running nodectl as a wheel, with nothing but the standard library: the same bytes for the same files."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from nodectl.common.private import is_secret
from nodectl.common.resources import COLLECTION, share_dir
from nodectl.errors import ProvisionError

_PACKAGE = Path(__file__).resolve().parents[1]
# what the collection is made of
COLLECTION_PARTS = ("meta", "playbooks", "plugins", "roles")
_TAG = "py3-none-any"
_WHEEL = f"Wheel-Version: 1.0\nGenerator: nodectl\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
# a fixed date, so that the bytes tell whether anything changed
_DATE = (2020, 1, 1, 0, 0, 0)


def build(folder: Path) -> Path:
    """Write `nodectl-VERSION-py3-none-any.whl` into `folder`; ProvisionError if nodectl is not installed."""
    try:
        installed = distribution("nodectl")
    except PackageNotFoundError as error:
        raise ProvisionError("nodectl is not installed in this Python", "run `pip install -e .`") from error
    name = f"nodectl-{installed.version}"
    scripts = [entry for entry in installed.entry_points if entry.group == "console_scripts"]
    entries = "".join(f"{script.name} = {script.value}\n" for script in scripts)
    files = dict(_files())
    files[f"{name}.dist-info/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{name}.dist-info/WHEEL"] = _WHEEL.encode()
    files[f"{name}.dist-info/entry_points.txt"] = f"[console_scripts]\n{entries}".encode()
    path = folder / f"{name}-{_TAG}.whl"
    staged = path.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(inside, _DATE), data, zipfile.ZIP_DEFLATED)
        record = f"{name}.dist-info/RECORD"
        archive.writestr(zipfile.ZipInfo(record, _DATE), _record(files, record))
    return staged.replace(path)


def _files() -> Iterator[tuple[str, bytes]]:
    for path in _below(_PACKAGE):
        yield f"nodectl/{path.relative_to(_PACKAGE)}", path.read_bytes()
    share = share_dir()
    for part in COLLECTION_PARTS:
        for path in _below(share / part):
            yield str(COLLECTION / path.relative_to(share)), path.read_bytes()


def _below(folder: Path) -> list[Path]:
    """Its files, without what is no part of nodectl: what Python has compiled, and secrets that somebody left there."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".pyc", ".pyo"))
    return [path for path in files if not is_secret(path.relative_to(folder).as_posix())]


def _record(files: dict[str, bytes], name: str) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for inside, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([inside, f"sha256={digest}", len(data)])
    rows.writerow([name, "", ""])
    return text.getvalue()


def main() -> None:
    """Build it in the state folder; `PATH SHA256` is the answer."""
    from nodectl.common.paths import state_dir

    folder = state_dir() / "wheel"
    folder.mkdir(exist_ok=True)
    path = build(folder)
    sys.stdout.write(f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}\n")


if __name__ == "__main__":
    main()
