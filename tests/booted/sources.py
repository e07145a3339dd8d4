"""This machine's own apt sources for its own release, as one-line entries; nothing here names an archive."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

_APT = Path("/etc/apt")


def codename() -> str:
    """The release that this machine runs, and that is booted."""
    return _os_release()["VERSION_CODENAME"]


def distribution() -> str:
    """Whose release it is."""
    return _os_release()["ID"]


def _os_release() -> dict[str, str]:
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))


def own_sources(folder: Path = _APT, release: str = "") -> list[str]:
    """`deb [options] URI SUITE COMPONENT…` of each enabled source whose suite is this release or one of its pockets.

    With another `release` its suites stand in the place of this one's.
    """
    own = codename()
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    lines: list[str] = []
    for path in files:
        if path.suffix == ".sources":
            lines += [line for block in re.split(r"\n\s*\n", path.read_text()) for line in deb822_lines(block)]
        elif path.is_file() and path.suffix == ".list":
            lines += [line.strip() for line in path.read_text().splitlines() if line.startswith("deb ")]
    chosen = [line for line in lines if suite_of(line).partition("-")[0] == own and "main" in line.split()]
    if not chosen:
        raise RuntimeError(f"no apt source of {own} in {folder}: there is nothing to make a system from")
    # a key or an address may have the release in its name: the suite stands alone
    there = [re.sub(rf" {own}(?=[ -])", f" {release or own}", line) for line in chosen]
    return list(dict.fromkeys(there))


def suite_of(line: str) -> str:
    """The suite of a one-line entry."""
    words = re.sub(r"\[[^\]]*\]", "", line).split()
    return words[2] if len(words) > 2 else ""


def deb822_lines(block: str) -> Iterator[str]:
    """The one-line entries that a stanza of a .sources file stands for; a key embedded in it is left out."""
    text = "\n".join(line for line in block.splitlines() if not line.startswith("#"))
    fields = {
        name.lower(): " ".join(value.split())
        for name, value in re.findall(r"^([\w-]+):((?:.*\n?(?:[ \t].*\n?)*))", text, re.MULTILINE)
    }
    if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes") == "no":
        return
    key = fields.get("signed-by", "")
    options = f"[signed-by={key}] " if key.startswith("/") else ""
    for uri in fields.get("uris", "").split():
        for suite in fields.get("suites", "").split():
            yield f"deb {options}{uri} {suite} {fields.get('components', '')}".rstrip()


def apt_options() -> list[str]:
    """The machine's apt settings on which its sources depend: proxies and the checking of dates."""
    shown = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    wanted = r"^Acquire::(?:https?::Proxy|Check-Valid-Until|Check-Date|Retries) .*;$"
    return re.findall(wanted, shown, re.MULTILINE)
