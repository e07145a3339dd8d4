"""An inventory's files in their folder: all of them or none, and over no other file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.errors import UsageError


def write_all(folder: Path, files: Mapping[Path, str], *, force: bool) -> list[Path]:
    """Write `files` below the folder, and return where they lie; UsageError, with nothing written, where that fails."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "name a folder")
    places = {folder / path: text for path, text in files.items()}
    there = [str(place) for place in places if place.exists() or place.is_symlink()]
    if there and not force:
        raise UsageError(f"{', '.join(there)} is there already", "name another folder, or write over it with --force")
    try:
        if folder.exists():
            _into(folder, places)
        else:
            _beside(folder, files)
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder}: {error.strerror or error}", "name a folder that you may write"
        ) from error
    return list(places)


def _into(folder: Path, places: Mapping[Path, str]) -> None:
    """Into a folder that is there; what was written before a failure is taken away or put back."""
    before = {place: place.read_bytes() if place.exists() else None for place in places}
    (folder / "group_vars").mkdir(exist_ok=True)
    done: list[Path] = []
    try:
        for place, text in places.items():
            replace_file(place, text, mode=0o644)
            done.append(place)
    except OSError:
        for place in done:
            content = before[place]
            if content is None:
                place.unlink()
            else:
                replace_file(place, content, mode=0o644)
        raise


def _beside(folder: Path, files: Mapping[Path, str]) -> None:
    """As a new folder, which is there only when it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for path, text in files.items():
            (draft / path).parent.mkdir(exist_ok=True)
            (draft / path).write_text(text, encoding="utf-8")
        draft.chmod(0o777 & ~_umask())
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
